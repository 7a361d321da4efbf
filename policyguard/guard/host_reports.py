"""Errors for the host that come with the next decision of a session, and in the log at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.guard.host_log import warn
from policyguard.model.decision import Decision, EvalError

if TYPE_CHECKING:
    from policyguard.journal.findings import VerifyFinding


class HostReports:
    """The errors that no decision has reported yet, by session."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: dict[str, list[EvalError]] = {}

    def add(self, session: str, error: EvalError) -> None:
        """Log an error, and keep it for the session's next decision."""
        warn(f"session {session!r:.80}: {error.error}")
        self.pending.setdefault(session, []).append(error)

    def add_repair(self, session: str, finding: VerifyFinding) -> None:
        """Add what was repaired in a session's journal."""
        text = f"{finding.file}: {finding.message}; {finding.help}"
        self.add(session, EvalError(finding.code, text))

    def report(self, decision: Decision) -> Decision:
        """Return a decision with the errors of its session, which are then forgotten."""
        errors = self.pending.pop(decision.session, None)
        return decision if errors is None else replace(decision, errors=(*decision.errors, *errors))
