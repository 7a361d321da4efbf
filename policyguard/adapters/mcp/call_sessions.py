"""The sessions in which calls are checked: this process's own, or those of the service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.evaluator.disabled_tools import find_disabled_tools, may_edit_results
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision


class CallSession(Protocol):
    """A session: `in_flight` are the calls that were admitted, and not reported."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def in_flight(self) -> Mapping[str, str]:
        """The calls that were admitted and not reported, with their fingerprints."""

    def approve(self, decision: Decision, *, by: str) -> bool:
        """Approve a call that was asked about, as `Session.approve` does."""

    def deny(self, decision: Decision, *, by: str) -> bool:
        """Say no to a call that was asked about, as `Session.deny` does."""

    def release(self, decision: Decision) -> None:
        """Take back an admission, as `Session.release` does."""


class RecordedCall(Protocol):
    """What became of a result; the attributes are those of `Recorded`."""

    @property
    def text(self) -> str:
        """The result for the model, as text."""

    @property
    def result(self) -> Any:
        """The result to hand on."""

    @property
    def advice(self) -> str:
        """Text to add to the result."""

    @property
    def violations(self) -> tuple[Any, ...]:
        """The result rules that fired."""


class CallSessions(Protocol):
    """The sessions, found by what a request says of them; as `ServedSessions`."""

    @property
    def guard(self) -> Guard:
        """The guard that knows what the policy says of tools and results."""

    @property
    def allows_on_error(self) -> bool:
        """Whether calls run on which policyguard itself fails."""

    def get_open(self, request: SessionRequest) -> CallSession | None:
        """Return the session of a request if it is open; opening it may take a while."""

    def open(self, request: SessionRequest) -> CallSession:
        """Return the session of a request, opened or resumed if need be."""

    def has_seen(self, session: str, call: str) -> bool:
        """Whether a call was checked lately."""

    def check(
        self,
        session: Any,
        tool: str,
        args: Any,
        call: str | None,
        *,
        may_be_repeated: bool = True,
        **options: Any,
    ) -> Decision:
        """Check a call."""

    def record(self, session: Any, call: str, **result: Any) -> RecordedCall:
        """Report a result."""

    def find_disabled(self, session: Any, tools: Iterable[str] = ()) -> Mapping[str, str]:
        """Return the disabled tools with the reason: by limits, and of `tools` by the policy."""

    def may_edit_results(self, session: Any, tool: str) -> bool:
        """Whether a result rule may change the results of a tool."""


class LocalSessions(ServedSessions):
    """The sessions of a guard in this process."""

    def find_disabled(self, session: Session, tools: Iterable[str] = ()) -> Mapping[str, str]:
        """Return the disabled tools with the reason: by limits, and of `tools` by the policy."""
        guard = session.guard
        if guard._mode.observe:
            return {}
        with guard._lock:
            return find_disabled_tools(guard._evaluator, session._state, tools)

    def may_edit_results(self, session: Session, tool: str) -> bool:
        """Whether a result rule may change the results of a tool."""
        return may_edit_results(session.guard._evaluator, session._state.agent, tool)
