"""The service as an ASGI application.

Checks and records are most of its work, and a web framework's routing takes longer than either:
operations are looked up by path before Starlette sees the request. It serves everything else.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from policyguard.adapters import json_text
from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import HOSTS, answer_hook
from policyguard.adapters.request_body import BodyError, read_body
from policyguard.adapters.service.handlers import OPERATIONS, Operation
from policyguard.adapters.service.metrics import Metrics
from policyguard.adapters.service.observer import ServiceObserver
from policyguard.adapters.service.openapi import describe_api
from policyguard.adapters.service.problems import describe_problem
from policyguard.adapters.service.protocol import (
    CheckRequest,
    ConsoleAnswer,
    ConsoleRequest,
    Done,
    Health,
    Problem,
    ReloadRequest,
)
from policyguard.adapters.service.webhooks import open_webhook
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.adapters.waiting import StillWaiting, holding
from policyguard.guard.host_log import log_failure
from policyguard.model.errors import PolicyguardError

if TYPE_CHECKING:
    from policyguard.adapters.service.console.app import Console
    from policyguard.adapters.service.reload import PolicyReload
    from policyguard.guard.guard import Guard

ADMIN_PATHS = frozenset(
    f"/v1/{name}"
    for name in ("approve", "console", "deny", "grant", "revoke", "reload", "shutdown")
)
"""What a person does, and an agent must not."""

MAX_BODY = 8 * 1024 * 1024
"""Bytes of a request; the policy's `bounds` of arguments are far below it."""

WAIT_HEADER = "policyguard-wait"
"""How long a hook's request may wait for a person: `SECONDS`, or `SECONDS again` where it was sent
before. The answer is 202 if there is none by then; with 0 it is the decision as it is."""

_MAX_THREADS = 128
"""Requests that wait for something at once: for people, mostly."""

_SWAP_POLL = 0.005

R = TypeVar("R")

OpenConsole = Callable[[str, tuple[str, ...]], Awaitable[str]]
"""Takes who will answer, with labels, and returns the address of the console."""

_JSON = b"application/json"
_PROBLEM = b"application/problem+json"


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    content_type: bytes
    body: bytes


class ServiceApp:
    """The ASGI application over a guard.

    With a `token`, requests need it as a bearer token; with an `admin_token`, `ADMIN_PATHS` need
    that one. `on_request` is called at each request, `on_shutdown` when one asks the service to
    end.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        store: str | None,
        token: str = "",
        admin_token: str = "",
        on_request: Callable[[], None] = lambda: None,
        on_shutdown: Callable[[], None] = lambda: None,
    ) -> None:
        self.guard = guard
        self.metrics = Metrics(guard)
        self.observer = ServiceObserver(self.metrics)
        self._webhook = open_webhook(guard, guard._approvals.webhook)
        self.sessions = ServedSessions(guard, self.observer)
        self._store = store
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._admin = f"Bearer {admin_token}".encode() if admin_token else b""
        self.reload: PolicyReload | None = None
        self.console: Console | None = None
        self.open_console: OpenConsole | None = None
        self._on_request, self._on_shutdown = on_request, on_shutdown
        self._started = time.monotonic()
        self._in_threads = 0
        self._threads = ThreadPoolExecutor(_MAX_THREADS, "policyguard-request")
        self._in_force = asyncio.Event()
        self._in_force.set()
        self._operations = {operation.path: operation for operation in OPERATIONS}
        self._paths = {path.encode(): path for path in self._operations}
        self._pages = Starlette(
            routes=[
                Route("/v1/shutdown", self._shut_down, methods=["POST"]),
                Route("/v1/reload", self._reload_policy, methods=["POST"]),
                Route("/v1/console", self._open_console, methods=["POST"]),
                Route("/v1/health", self._health),
                Route("/v1/sessions", self._list_sessions),
                Route("/v1/constraints", self._list_constraints),
                Route("/v1/grants", self._list_grants),
                Route("/v1/hooks/{host}", self._answer_hook, methods=["POST"]),
                Route("/metrics", self._show_metrics),
                Route("/openapi.json", self._show_api),
            ],
            exception_handlers={404: _answer_unknown_path, 405: _answer_unknown_path},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        self._on_request()
        path, headers = scope["path"], scope["headers"]
        if not self._is_authorized(path, headers):
            await self._send(send, self._unauthorized())
            return
        operation = self._operations.get(path)
        if operation is None or scope["method"] != "POST":
            await self._pages(scope, receive, send)
            return
        began = time.perf_counter()
        try:
            body = await read_body(receive, MAX_BODY)
            await self._in_force.wait()
            request = json_text.decode(body, operation.request)
            if self._runs_at_once(request):
                result = operation.run(self.sessions, request)
            else:
                result = await self._run_in_thread(operation.run, request)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            await self._send(send, self._describe_error(operation, error))
        else:
            await self._send(send, self._encode_result(operation, result, began))

    def takes(self, url: bytes) -> bool:
        """Whether `answer_at_once` may have an answer to requests of this address."""
        return url in self._paths

    def answer_at_once(
        self, url: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> Answer | None:
        """Return the answer to a request that need not wait: its session is open.

        None if it must wait, or its body is too large; then nothing has happened.
        """
        path = self._paths[url]
        if len(body) > MAX_BODY or not self._in_force.is_set():
            return None
        began = time.perf_counter()
        operation = self._operations[path]
        if not self._is_authorized(path, headers):
            return None
        try:
            request = json_text.decode(body, operation.request)
            if not self._runs_at_once(request):
                return None
            self._on_request()
            result = operation.run(self.sessions, request)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            return self._describe_error(operation, error)
        return self._encode_result(operation, result, began)

    def note_request(self) -> None:
        """Note that someone uses the service: it is not idle."""
        self._on_request()

    def _runs_at_once(self, request: Any) -> bool:
        """Whether a request is for an open session; to open one may take a while."""
        if isinstance(request, CheckRequest) and request.wait:
            return False
        return isinstance(request, SessionRequest) and self.sessions.get_open(request) is not None

    async def _run_in_thread(self, run: Callable[..., R], *arguments: object) -> R:
        """Call a function with the sessions in a thread; the policy is not swapped meanwhile."""
        await self._in_force.wait()
        self._in_threads += 1
        try:
            call = partial(copy_context().run, run, self.sessions, *arguments)
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            self._in_threads -= 1

    async def swap(self, load: Callable[[], Guard]) -> None:
        """Put another guard in place of this one, which is closed; sessions go on in it.

        If it cannot be loaded, the service ends, and the next one says why.
        """
        self._in_force.clear()
        self.sessions.end_waiting()
        if self._webhook is not None:
            self._webhook.close()
        try:
            while self._in_threads:
                await asyncio.sleep(_SWAP_POLL)
            await asyncio.to_thread(self.guard.close)
            asked = self.sessions.asked
            self.guard = self.metrics.guard = await asyncio.to_thread(load)
            self.sessions = ServedSessions(self.guard, self.observer)
            self.sessions.asked.update(asked)
            self._webhook = open_webhook(self.guard, self.guard._approvals.webhook)
            if self.console is not None:
                self.console.attach()
        except PolicyguardError:
            log_failure("the policy could not be swapped: the service ends")
            self._on_shutdown()
        finally:
            self._in_force.set()

    def close(self) -> None:
        """Close the guard, and send nothing more."""
        if self._webhook is not None:
            self._webhook.close()
        self.sessions.end_waiting()
        self.guard.close()

    def _is_authorized(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        if not (self._authorization or self._admin):
            return True
        given = next((value for name, value in headers if name == b"authorization"), b"")
        if given[:7].lower() == b"bearer ":  # schemes have no case (RFC 9110 §11.1)
            given = b"Bearer " + given[7:]
        if self._admin and hmac.compare_digest(given, self._admin):
            return True
        if self._admin and path in ADMIN_PATHS:
            return False
        return not self._authorization or hmac.compare_digest(given, self._authorization)

    def _encode_result(self, operation: Operation, result: msgspec.Struct, began: float) -> Answer:
        body = json_text.encode(result)
        self.metrics.note_request(operation.path, time.perf_counter() - began)
        return Answer(200, _JSON, body)

    def _describe_error(self, operation: Operation, error: Exception) -> Answer:
        self.metrics.note_error(operation.path)
        if isinstance(error, BodyError):
            problem = Problem(title=error.title, status=error.status, detail=error.detail)
        else:
            problem = describe_problem(error, operation.request)
        if problem.status == 500:
            log_failure(f"a request to {operation.path} failed")
        return Answer(problem.status, _PROBLEM, json_text.encode(problem))

    def _unauthorized(self) -> Answer:
        detail = "send the token of the service's token file as `Authorization: Bearer …`"
        problem = Problem(title="token missing or wrong", status=401, detail=detail)
        return Answer(problem.status, _PROBLEM, json_text.encode(problem))

    async def _send(self, send: Send, answer: Answer) -> None:
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", str(len(answer.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _health(self, _: HttpRequest) -> Response:
        import policyguard

        health = Health(
            status="ok",
            version=policyguard.__version__,
            policy=self.guard.policy,
            digest=self.guard.digest,
            store=self._store,
            pid=_pid(),
            uptime=round(time.monotonic() - self._started, 3),
            sessions=len(self.sessions.list()),
        )
        return _json(health)

    async def _answer_hook(self, request: HttpRequest) -> Response:
        host = request.path_params["host"]
        if host not in HOSTS:
            detail = f"no hooks of `{host}`; there are those of {', '.join(HOSTS)}"
            return _json(Problem(title="unknown host", status=404, detail=detail), 404)
        try:
            body = await read_body(request.receive, MAX_BODY)
        except BodyError as error:
            return Response(error.detail, error.status)
        wait = request.headers.get(WAIT_HEADER, "")
        try:
            answer = await self._run_in_thread(_answer_hook, host, body, wait)
        except StillWaiting:
            return Response(b"", 202)
        if answer.exit_code:
            return Response(answer.error, 500, media_type="text/plain")
        return _json(answer.output) if answer.output is not None else Response(b"")

    async def _reload_policy(self, request: HttpRequest) -> Response:
        try:
            asked = msgspec.json.decode(
                await read_body(request.receive, MAX_BODY), type=ReloadRequest
            )
        except (BodyError, ValueError) as error:
            return _json(Problem(title="invalid request", status=400, detail=str(error)), 400)
        problem = "this service cannot reload" if self.reload is None else ""
        if self.reload is not None:
            problem = await self.reload.reload(asked.digest)
        if problem:
            return _json(Problem(title="policy not loaded", status=409, detail=problem), 409)
        return _json(Done())

    async def _open_console(self, request: HttpRequest) -> Response:
        try:
            asked = msgspec.json.decode(
                await read_body(request.receive, MAX_BODY), type=ConsoleRequest
            )
        except (BodyError, ValueError) as error:
            return _json(Problem(title="invalid request", status=400, detail=str(error)), 400)
        if self.open_console is None:
            detail = "this service has no console"
            return _json(Problem(title="no console", status=409, detail=detail), 409)
        return _json(ConsoleAnswer(url=await self.open_console(asked.by, tuple(asked.labels))))

    async def _shut_down(self, _: HttpRequest) -> Response:
        self._on_shutdown()
        return _json(Done())

    async def _list_sessions(self, _: HttpRequest) -> Response:
        return _json(self.sessions.list())

    async def _list_constraints(self, _: HttpRequest) -> Response:
        return _json(await asyncio.to_thread(self.guard.constraints))

    async def _list_grants(self, _: HttpRequest) -> Response:
        return _json(await asyncio.to_thread(self.guard.grants))

    async def _show_metrics(self, _: HttpRequest) -> Response:
        body, media_type = self.metrics.render()
        return Response(body, media_type=media_type)

    async def _show_api(self, _: HttpRequest) -> Response:
        return _json(describe_api())


async def _answer_unknown_path(request: HttpRequest, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    title = "unknown path" if status == 404 else "wrong method"
    detail = f"{request.method} {request.url.path}; /openapi.json lists what there is"
    return _json(Problem(title=title, status=status, detail=detail), status)


def _answer_hook(sessions: ServedSessions, host: str, body: bytes, wait: str) -> HookAnswer:
    """Answer an event; `wait` is `SECONDS`, or `SECONDS again` where it was sent before."""
    text, _, again = wait.partition(" ")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        return answer_hook(sessions, host, body)
    with holding(float(text), is_repeated=again == "again", is_last=text == "0"):
        return answer_hook(sessions, host, body)


def _json(value: Any, status: int = 200) -> Response:
    media_type = "application/json" if status < 400 else "application/problem+json"
    return Response(json_text.encode(value), status, media_type=media_type)


def _pid() -> int:
    import os

    return os.getpid()
