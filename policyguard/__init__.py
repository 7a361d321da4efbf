"""A declarative policy engine for AI agents' tool calls.

    from policyguard import Guard

    session = Guard.load("core").session("run-1")
    decision = session.check("read_file", {"path": "a.txt"})
    if decision.allowed:
        session.record(decision, result=...)

The names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policyguard.guard import Guard, Session
    from policyguard.journal.errors import AlteredError, JournalError
    from policyguard.model.decision import Decision, Violation
    from policyguard.model.diagnostic import Diagnostic, PolicyError
    from policyguard.model.effect import Effect
    from policyguard.model.errors import CallRefused, ToolTimeoutError
    from policyguard.model.outcome import Outcome, Recorded
    from policyguard.store.errors import SessionBusyError, StoreError

_MODULES = {
    "AlteredError": "policyguard.journal.errors",
    "CallRefused": "policyguard.model.errors",
    "Decision": "policyguard.model.decision",
    "Diagnostic": "policyguard.model.diagnostic",
    "Effect": "policyguard.model.effect",
    "Guard": "policyguard.guard",
    "JournalError": "policyguard.journal.errors",
    "Outcome": "policyguard.model.outcome",
    "PolicyError": "policyguard.model.diagnostic",
    "Recorded": "policyguard.model.outcome",
    "Session": "policyguard.guard",
    "SessionBusyError": "policyguard.store.errors",
    "StoreError": "policyguard.store.errors",
    "ToolTimeoutError": "policyguard.model.errors",
    "Violation": "policyguard.model.decision",
}

__all__ = [
    "AlteredError",
    "CallRefused",
    "Decision",
    "Diagnostic",
    "Effect",
    "Guard",
    "JournalError",
    "Outcome",
    "PolicyError",
    "Recorded",
    "Session",
    "SessionBusyError",
    "StoreError",
    "ToolTimeoutError",
    "Violation",
]


def __getattr__(name: str) -> Any:
    home = _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
