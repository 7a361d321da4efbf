"""A declarative policy engine for AI agents' tool calls.

    from policyguard import Guard

    with Guard.load("core").session("run-1") as session:
        decision = session.check("read_file", {"path": "a.txt"})
        if decision.allowed:
            session.record(decision, result=...)

Names are imported when they are first used: importing the package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` and `importlib` take a hook's process longer than its work
if TYPE_CHECKING:
    from typing import Any

    from policyguard.guard.approvals.approver import Approver
    from policyguard.guard.guard import Guard
    from policyguard.guard.listeners import Listener
    from policyguard.guard.session import Session
    from policyguard.guard.sessions.status import Progress
    from policyguard.journal.errors import AlteredError, JournalError
    from policyguard.model.constraint import Constraint, Observation
    from policyguard.model.decision import Decision, EvalError, Violation
    from policyguard.model.diagnostic import Diagnostic, PolicyError
    from policyguard.model.effect import Effect
    from policyguard.model.errors import (
        CallRefused,
        ClosedError,
        PolicyguardError,
        RedactedError,
        SessionLimitError,
        ToolTimeoutError,
        UnknownCallError,
    )
    from policyguard.model.event import (
        Admitted,
        Approved,
        CallEnded,
        CandidateDiffered,
        Charge,
        ChildCharged,
        Completed,
        Denied,
        Event,
        Granted,
        MarkChange,
        Marked,
        Refused,
        Released,
        SessionEnded,
        SessionStarted,
        Spent,
        ToolsOffered,
        TurnStarted,
    )
    from policyguard.model.outcome import Outcome, Recorded
    from policyguard.model.policy import Blame
    from policyguard.store.errors import SessionBusyError, StoreError

    __version__: str

_MODULES = {
    "Admitted": "policyguard.model.event",
    "AlteredError": "policyguard.journal.errors",
    "Approved": "policyguard.model.event",
    "Approver": "policyguard.guard.approvals.approver",
    "Blame": "policyguard.model.policy",
    "CallEnded": "policyguard.model.event",
    "CallRefused": "policyguard.model.errors",
    "CandidateDiffered": "policyguard.model.event",
    "Charge": "policyguard.model.event",
    "ChildCharged": "policyguard.model.event",
    "ClosedError": "policyguard.model.errors",
    "Completed": "policyguard.model.event",
    "Constraint": "policyguard.model.constraint",
    "Decision": "policyguard.model.decision",
    "Denied": "policyguard.model.event",
    "Diagnostic": "policyguard.model.diagnostic",
    "Effect": "policyguard.model.effect",
    "EvalError": "policyguard.model.decision",
    "Event": "policyguard.model.event",
    "Granted": "policyguard.model.event",
    "Guard": "policyguard.guard.guard",
    "JournalError": "policyguard.journal.errors",
    "Listener": "policyguard.guard.listeners",
    "MarkChange": "policyguard.model.event",
    "Marked": "policyguard.model.event",
    "Observation": "policyguard.model.constraint",
    "Outcome": "policyguard.model.outcome",
    "PolicyError": "policyguard.model.diagnostic",
    "PolicyguardError": "policyguard.model.errors",
    "Progress": "policyguard.guard.sessions.status",
    "Recorded": "policyguard.model.outcome",
    "RedactedError": "policyguard.model.errors",
    "Refused": "policyguard.model.event",
    "Released": "policyguard.model.event",
    "Session": "policyguard.guard.session",
    "SessionBusyError": "policyguard.store.errors",
    "SessionEnded": "policyguard.model.event",
    "SessionLimitError": "policyguard.model.errors",
    "SessionStarted": "policyguard.model.event",
    "Spent": "policyguard.model.event",
    "StoreError": "policyguard.store.errors",
    "ToolTimeoutError": "policyguard.model.errors",
    "ToolsOffered": "policyguard.model.event",
    "TurnStarted": "policyguard.model.event",
    "UnknownCallError": "policyguard.model.errors",
    "Violation": "policyguard.model.decision",
}

__all__ = [
    "Admitted",
    "AlteredError",
    "Approved",
    "Approver",
    "Blame",
    "CallEnded",
    "CallRefused",
    "CandidateDiffered",
    "Charge",
    "ChildCharged",
    "ClosedError",
    "Completed",
    "Constraint",
    "Decision",
    "Denied",
    "Diagnostic",
    "Effect",
    "EvalError",
    "Event",
    "Granted",
    "Guard",
    "JournalError",
    "Listener",
    "MarkChange",
    "Marked",
    "Observation",
    "Outcome",
    "PolicyError",
    "PolicyguardError",
    "Progress",
    "Recorded",
    "RedactedError",
    "Refused",
    "Released",
    "Session",
    "SessionBusyError",
    "SessionEnded",
    "SessionLimitError",
    "SessionStarted",
    "Spent",
    "StoreError",
    "ToolTimeoutError",
    "ToolsOffered",
    "TurnStarted",
    "UnknownCallError",
    "Violation",
]  # `__version__` too; reading it loads the distribution's metadata


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("policyguard-engine")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
