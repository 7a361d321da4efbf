"""What was repaired in journals, until a decision of their session has said it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.guard.host_log import warn
from policyguard.model.decision import Decision, EvalError

if TYPE_CHECKING:
    from policyguard.journal.findings import VerifyFinding


class RepairReports:
    """The repairs that no decision has reported yet, by session. The log has them at once."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: dict[str, list[EvalError]] = {}

    def note(self, session: str, finding: VerifyFinding) -> None:
        """Log a repair, and keep it for the session's next decision."""
        text = f"{finding.file}: {finding.message}; {finding.help}"
        warn(f"session {session!r:.80}: {text}")
        self.pending.setdefault(session, []).append(EvalError(finding.code, text))

    def report(self, decision: Decision) -> Decision:
        """Return a decision with the repairs of its session, which are then forgotten."""
        errors = self.pending.pop(decision.session, None)
        return decision if errors is None else replace(decision, errors=(*decision.errors, *errors))
