"""The console as an ASGI application: one page, fragments of it, and answers.

A page of another site may reach a loopback port. So everything but the empty page needs a token
that the browser never sends by itself, requests must name this server (a foreign name that resolves
here does not), and no site may show the console in a frame. Everything shown is escaped, and the
page may run no script but its own.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from policyguard.adapters.request_body import BodyError, read_body
from policyguard.adapters.service import handlers
from policyguard.adapters.service.console import views
from policyguard.adapters.service.console.answers import NO_QUESTION, Person, answer_question
from policyguard.adapters.service.console.feed import ConsoleFeed
from policyguard.adapters.service.problems import describe_problem
from policyguard.adapters.service.protocol import ApproveRequest, RevokeRequest
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.journal.errors import JournalError
from policyguard.model.question import OpenQuestion
from policyguard.model.text import sanitize
from policyguard.simulate.why import explain_call
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.adapters.service.app import ServiceApp
    from policyguard.guard.guard import Guard

_MAX_BODY = 65536
_BATCH = 0.25
"""Seconds between two messages of a stream, in which changes add up."""
_ALIVE = 15.0
"""Seconds after which a stream without changes says that it is alive."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_OPEN_PATHS = {"/": "text/html", "/console.js": "text/javascript", "/console.css": "text/css"}
"""What is the same for everyone, and needs no token."""


class _Exact(str):
    """An id in an attribute, which must stay as it is."""

    __slots__ = ()


def _show(value: object) -> object:
    """Return what a template writes: texts without control characters."""
    if type(value) is str and not value.isprintable():
        return "\n".join(map(sanitize, value.split("\n")))
    return value


class Console:
    """The pages over a service's guard. Each person has a token of their own."""

    def __init__(self, service: ServiceApp, policies: tuple[str, ...]) -> None:
        self._service, self._policies = service, policies
        self._people: dict[str, Person] = {}
        self._compiled: CompiledPolicy | None = None
        self.port = 0
        self.feed = ConsoleFeed(service.guard._state.redact)
        environment = Environment(
            loader=PackageLoader("policyguard.adapters.service.console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_show,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["exact"] = _Exact
        environment.filters["calls"] = lambda count: f"{count:,} call{'s' * (count != 1)}"
        environment.globals.update(strip=views.strip, symbol=views.symbol, time=views.format_time)
        self._templates = environment
        service.observer.feed = self.feed
        self._assets = {path: _read_asset(path) for path in _OPEN_PATHS}
        self._routes = Starlette(
            routes=[
                Route("/who", self._who),
                Route("/stream", self._stream),
                Route("/fragment/{name}", self._fragment),
                Route("/answer", self._answer, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
            ]
        )
        self.attach()

    def attach(self) -> None:
        """Follow the guard that the service has now."""
        self._compiled = None
        self.feed.redact = self._service.guard._state.redact
        self._service.guard.expect_answers()
        self._service.guard.on(self.feed.note)

    def load_history(self) -> None:
        """Add the journals of the sessions that are open. It may take a while."""
        guard = self._service.guard
        self._load_events(guard)
        for session, call, text in self._service.observer.reasons():
            self.feed.note_reason(session, call, text)

    def _load_events(self, guard: Guard) -> None:
        with guard._lock:
            journal, open_ = guard._journal, [*guard._state.evaluator_state.sessions]
        if journal is None:
            return
        for session in open_:
            with suppress(JournalError, StoreError):  # its timeline begins now
                self.feed.load(session, journal.read_events(session))

    def add_person(self, person: Person) -> str:
        """Return a new token for a person."""
        token = secrets.token_urlsafe(32)
        self._people[token] = person
        return token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        self._service.note_request()
        request = Request(scope, receive)
        response: Response | None = self._refuse_foreign(request)
        path = request.url.path
        if response is None and path in _OPEN_PATHS and request.method in ("GET", "HEAD"):
            response = Response(self._assets[path], media_type=_OPEN_PATHS[path])
        elif response is None:
            person = self._find_person(request.headers.get("authorization", ""))
            if person is None:
                response = _problem(
                    401, "this address needs the token that `policyguard console` shows"
                )
            else:
                scope["person"] = person

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await (response or self._routes)(scope, receive, send_guarded)

    def _refuse_foreign(self, request: Request) -> Response | None:
        """Refuse a request by another name, or from another site's page."""
        names = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        if request.headers.get("host") not in names:
            return _problem(421, "this server has another name")
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{name}" for name in names}:
            return _problem(403, "the request comes from another site")
        is_own = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if not is_own and request.headers.get("sec-fetch-mode") != "navigate":
            return _problem(403, "the request comes from another site")
        return None

    def _find_person(self, authorization: str) -> Person | None:
        given = authorization.removeprefix("Bearer ").encode("utf-8", "replace")
        found = None
        for token, person in self._people.items():
            if hmac.compare_digest(given, token.encode()):
                found = person
        return found

    async def _who(self, request: Request) -> Response:
        person, guard = request.scope["person"], self._service.guard
        return JSONResponse({"by": person.by, "labels": [*person.labels], "policy": guard.policy})

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[bytes]:
        """Yield which sessions changed, and whether the calls that wait may have."""
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        changed: set[str] = set()
        may_ask = True

        def add(session: str, asks: bool) -> None:
            nonlocal may_ask
            changed.add(session)
            may_ask |= asks
            wake.set()

        def note(session: str, asks: bool) -> None:
            loop.call_soon_threadsafe(add, session, asks)

        stop = self.feed.listen(note)
        try:
            while True:
                message = {"sessions": sorted(changed), "questions": may_ask}
                changed.clear()
                may_ask = False
                wake.clear()
                yield f"data: {json.dumps(message)}\n\n".encode()
                self._service.note_request()
                await asyncio.sleep(_BATCH)
                try:
                    await asyncio.wait_for(wake.wait(), _ALIVE)
                except TimeoutError:
                    may_ask = True  # an approval, or the time for one, may have run out
        finally:
            stop()

    async def _fragment(self, request: Request) -> Response:
        build = _FRAGMENTS.get(request.path_params["name"])
        if build is None:
            return _problem(404, "there is no such part of the page")
        try:
            name, values = await asyncio.to_thread(build, self, request)
        except Exception as error:  # noqa: BLE001 - it becomes an answer
            problem = describe_problem(error)
            return _problem(problem.status, problem.detail)
        text = self._templates.get_template(f"{name}.html").render(values)
        return HTMLResponse(text)

    async def _answer(self, request: Request) -> Response:
        person: Person = request.scope["person"]
        try:
            asked = json.loads(await read_body(request.receive, _MAX_BODY))
            question = await asyncio.to_thread(self._find_question, asked["session"], asked["call"])
            if question is None:
                return JSONResponse({"answered": False, "detail": NO_QUESTION})
            answered, detail = await asyncio.to_thread(
                answer_question, self._service.sessions, question, person, asked
            )
        except (BodyError, ValueError, KeyError, TypeError) as error:
            return _problem(400, str(error))
        except Exception as error:  # noqa: BLE001 - it becomes an answer
            problem = describe_problem(error)
            return _problem(problem.status, problem.detail)
        return JSONResponse({"answered": answered, "detail": detail})

    def _find_question(self, session: str, call: str) -> OpenQuestion | None:
        found = self._service.guard.questions(also_closed=True)
        return next((one for one in found if (one.session, one.call) == (session, call)), None)

    async def _revoke(self, request: Request) -> Response:
        person: Person = request.scope["person"]
        try:
            id_ = json.loads(await read_body(request.receive, _MAX_BODY))["id"]
            asked = RevokeRequest(id=str(id_), by=person.by)
            done = await asyncio.to_thread(handlers.revoke, self._service.sessions, asked)
        except (BodyError, ValueError, KeyError, TypeError) as error:
            return _problem(400, str(error))
        except Exception as error:  # noqa: BLE001 - it becomes an answer
            problem = describe_problem(error)
            return _problem(problem.status, problem.detail)
        return JSONResponse({"answered": done.revoked, "detail": ""})

    def show_questions(self, _: Request) -> tuple[str, dict[str, Any]]:
        """Show the calls that wait."""
        found = views.questions(self._service.sessions, self.feed)
        return "questions", {"questions": found}

    def show_sessions(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show the latest sessions, or those that are named."""
        names = request.query_params.getlist("id")
        if names:
            found = [self.feed.sessions[name] for name in names if name in self.feed.sessions]
            return "sessions", {"sessions": found, "more": 0, "strip_calls": views.STRIP_CALLS}
        count = _read_count(request.query_params.get("count"), views.PAGE)
        found, total = views.listed_sessions(self.feed, count)
        more = total - len(found)
        return "sessions", {"sessions": found, "more": more, "strip_calls": views.STRIP_CALLS}

    def show_session(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show one session with the latest of its calls, or those before one."""
        id_ = request.query_params.get("id", "")
        journal = self._service.guard._journal
        if id_ not in self.feed.sessions and journal is not None:  # it is closed
            self.feed.load(id_, journal.read_events(id_))
        session = self.feed.sessions.get(id_)
        if session is None:
            raise KeyError("the session has no journal here")
        calls = self.feed.calls_of(session.id)
        before = _read_count(request.query_params.get("before"), len(calls) + session.call_count)
        shown = [one for one in calls if one.number < before][-views.PAGE :]
        earlier = sum(one.number < shown[0].number for one in calls) if shown else 0
        return "session", {"session": session, "calls": shown, "earlier": earlier}

    def show_budgets(self, _: Request) -> tuple[str, dict[str, Any]]:
        """Show what budgets have left."""
        return "budgets", {"budgets": views.budgets(self._service.guard)}

    def show_constraints(self, _: Request) -> tuple[str, dict[str, Any]]:
        """Show the learned constraints."""
        return "constraints", {"constraints": views.constraints(self._service.guard)}

    def show_policy(self, _: Request) -> tuple[str, dict[str, Any]]:
        """Show the entries of the policy in force."""
        guard = self._service.guard
        found = views.entries(self._load_policy().policy, self.feed)
        return "policy", {"name": guard.policy, "digest": guard.digest, "entries": found}

    def show_grant(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show which calls a grant would cover."""
        asked = request.query_params
        question = self._find_question(asked.get("session", ""), asked.get("call", ""))
        preview = None
        if question is not None:
            session = self._service.sessions.open(
                ApproveRequest(
                    session=question.session,
                    call=question.call,
                    agent=question.agent,
                    user=question.user,
                    project=question.project,
                    parent=question.parent or None,
                    by="",
                )
            )
            preview = views.preview_grant(
                session, self.feed, question.call, asked.get("remember", "call")
            )
        return "grant", {"preview": preview}

    def show_why(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Show why a call was decided as it was."""
        guard = self._service.guard
        session, call = (
            request.query_params.get("session", ""),
            request.query_params.get("call", ""),
        )
        journal = guard._journal
        compiled = self._load_policy()
        events = journal.read_events(session) if journal is not None else ()
        return "why", {"why": explain_call(compiled, events, call)}

    def _load_policy(self) -> CompiledPolicy:
        if self._compiled is None:
            compiled = compile_policy(self._policies)
            compiled.fingerprinter.rekey(self._service.guard._fingerprinter.key)
            self._compiled = compiled
        return self._compiled


_FRAGMENTS: dict[str, Callable[[Console, Request], tuple[str, dict[str, Any]]]] = {
    "questions": Console.show_questions,
    "sessions": Console.show_sessions,
    "session": Console.show_session,
    "budgets": Console.show_budgets,
    "constraints": Console.show_constraints,
    "policy": Console.show_policy,
    "grant": Console.show_grant,
    "why": Console.show_why,
}


def _read_asset(path: str) -> bytes:
    name = "page.html" if path == "/" else path[1:]
    return resources.files(__package__).joinpath("static", name).read_bytes()


def _read_count(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def _problem(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status)
