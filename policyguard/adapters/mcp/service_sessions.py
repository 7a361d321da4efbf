"""The service's sessions, for the proxies of one client: what one server returns counts for all."""

from __future__ import annotations

import secrets
import subprocess
import time
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from os import getppid
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from policyguard.adapters import json_text
from policyguard.adapters.client.connection import ask, serve_command
from policyguard.adapters.client.location import locate_socket
from policyguard.adapters.service.protocol import (
    ApproveAnswer,
    CheckAnswer,
    DenyAnswer,
    Done,
    Problem,
    RecordAnswer,
)
from policyguard.adapters.sessions import SessionAnswer, SessionRequest
from policyguard.evaluator.disabled_tools import find_banned_tools, may_edit_results
from policyguard.guard.guard import Guard
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import PolicyguardError

A = TypeVar("A", bound=msgspec.Struct)

_SECONDS = 10.0
"""How long a request may take, the service's start included."""

_MAX_CALLS = 4096
"""Calls of a session that are remembered; the oldest are forgotten first."""


class ServiceRequestError(PolicyguardError):
    """The service could not do what it was asked: `str()` of it says why."""


class Service:
    """The way to the service of a policy and a store; it is started if need be."""

    def __init__(self, policies: Sequence[str], store: str | Path) -> None:
        self._socket = str(locate_socket(policies, store))
        self._command = serve_command(self._socket, policies, [str(store)])

    def post(self, path: str, request: Mapping[str, Any], answer: type[A]) -> A:
        """Return the answer to a request. Raises `ServiceRequestError`."""
        body = json_text.encode(request)
        deadline = time.monotonic() + _SECONDS
        repeated = json_text.encode({**request, "retry": True}) if path == "/v1/check" else None
        got = ask(self._socket, path, body, self._command, deadline, repeated=repeated)
        if got is None:
            raise ServiceRequestError("the service cannot be started")
        status, _, answered = got
        if status != 200:
            problem = msgspec.json.decode(answered, type=Problem)
            raise ServiceRequestError(f"{problem.title}: {problem.detail}")
        return msgspec.json.decode(answered, type=answer)


class ServiceSession:
    """A session that the service owns; `in_flight` are the calls of this process."""

    def __init__(self, service: Service, request: SessionRequest) -> None:
        self.id, self.agent = request.session, request.agent
        self.in_flight: dict[str, str] = {}
        self.seen: OrderedDict[str, None] = OrderedDict()
        self._service = service
        self._named = {"session": self.id, "agent": self.agent, "cwd": request.cwd}

    def post(self, path: str, answer: type[A], **fields: Any) -> A:
        """Ask the service about this session. Raises `ServiceRequestError`."""
        return self._service.post(path, {**self._named, **fields}, answer)

    def approve(self, decision: Decision, *, by: str) -> bool:
        """Approve a call that was asked about."""
        return self.post("/v1/approve", ApproveAnswer, call=decision.id, by=by).approved

    def deny(self, decision: Decision, *, by: str) -> bool:
        """Say no to a call that was asked about."""
        return self.post("/v1/deny", DenyAnswer, call=decision.id, by=by).denied

    def release(self, decision: Decision) -> None:
        """Take back an admission."""
        self.in_flight.pop(decision.id, None)
        self.post("/v1/release", Done, call=decision.id)


class ServiceSessions:
    """The sessions of the service; `guard` has the same policy, and no sessions."""

    def __init__(self, guard: Guard, service: Service) -> None:
        self.guard = guard
        self._service = service
        self._open: dict[str, ServiceSession] = {}

    @property
    def allows_on_error(self) -> bool:
        """Whether calls run on which policyguard itself fails."""
        return self.guard._mode.observe or self.guard._evaluator.allow_on_internal_error

    def get_open(self, request: SessionRequest) -> ServiceSession | None:
        """Return the session of a request if it is open."""
        return self._open.get(request.session)

    def open(self, request: SessionRequest) -> ServiceSession:
        """Open the session of a request. Raises `ServiceRequestError`."""
        session = ServiceSession(self._service, request)
        session.post("/v1/sessions", SessionAnswer)
        return self._open.setdefault(request.session, session)

    def has_seen(self, session: str, call: str) -> bool:
        """Whether a call was checked lately."""
        found = self._open.get(session)
        return found is not None and call in found.seen

    def check(
        self,
        session: ServiceSession,
        tool: str,
        args: Any,
        call: str | None,
        *,
        may_be_repeated: bool = True,
        **options: Any,
    ) -> Decision:
        """Check a call. Raises `ServiceRequestError`."""
        call = call or f"mcp:{secrets.token_hex(8)}"
        given = {name: value for name, value in options.items() if value is not None}
        answer = session.post("/v1/check", CheckAnswer, tool=tool, args=args, call=call, **given)
        session.seen[call] = None
        if len(session.seen) > _MAX_CALLS:
            session.seen.popitem(last=False)
        if answer.allowed:
            session.in_flight[call] = ""
        return Decision(
            call,
            session.id,
            tool,
            Effect(answer.effect),
            answer.allowed,
            violations=answer.violations,
            would=answer.would,
            errors=answer.errors,
            timeout=answer.timeout,
            left=answer.structured["budgets"],
        )

    def record(
        self,
        session: ServiceSession,
        call: str,
        *,
        error: BaseException | str | None = None,
        **result: Any,
    ) -> RecordAnswer:
        """Report a result. Raises `ServiceRequestError`."""
        session.in_flight.pop(call, None)
        given = {name: value for name, value in result.items() if value is not None}
        if error is not None:
            is_cancelled = isinstance(error, CancelledError)
            given |= {"error": str(error), "cancelled": is_cancelled}
        return session.post("/v1/record", RecordAnswer, call=call, **given)

    def find_disabled(
        self, session: ServiceSession, tools: Iterable[str] = ()
    ) -> Mapping[str, str]:
        """Return the disabled tools with the reason: by limits, and of `tools` by the policy."""
        banned = find_banned_tools(self.guard._evaluator, session.agent, tools)
        return {**banned, **session.post("/v1/sessions", SessionAnswer).disabled}

    def may_edit_results(self, session: ServiceSession, tool: str) -> bool:
        """Whether a result rule may change the results of a tool."""
        return may_edit_results(self.guard._evaluator, session.agent, tool)


def name_client_process() -> str:
    """Return a name of the process that started this one, and of no other: its id and its start."""
    parent = getppid()
    try:
        listed = subprocess.run(  # noqa: S603 - a fixed command
            ["ps", "-o", "lstart=", "-p", str(parent)],  # noqa: S607 - wherever the system has it
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
        start = "-".join(listed.stdout.split())
    except (OSError, subprocess.TimeoutExpired):
        start = ""
    return f"{parent}-{start}".rstrip("-")
