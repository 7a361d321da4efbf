"""The whole state of an engine, and the hooks by which a guard keeps more beside it."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt, CallResult
from policyguard.evaluator.budgets.usage import UsageLedger
from policyguard.evaluator.grants import GrantSet
from policyguard.evaluator.marks.mark_states import MarkStates
from policyguard.evaluator.session_state import SessionState
from policyguard.model.event import Granted, Refused, Spent


class TransitionHooks:
    """Hooks that transitions call after they have changed the state; here they do nothing."""

    def on_admitted(self, attempt: Attempt) -> None:
        """Follow an admission."""

    def on_refused(self, session: SessionState, event: Refused) -> None:
        """Follow a refusal."""

    def on_completed(self, result: CallResult) -> list[str]:
        """Follow a result. Return the ids of the constraints that it taught or confirmed."""
        return []

    def on_timed_out_ended(self, attempt: Attempt) -> None:
        """Follow the end of a call that ran on after its time was over."""

    def on_released(self, attempt: Attempt) -> None:
        """Follow an admission that was taken back."""

    def on_abandoned(self, attempt: Attempt, at: int | None) -> None:
        """Follow a call in flight that was dropped without a result."""

    def on_spent(self, event: Spent) -> None:
        """Follow what the model used between calls."""

    def on_ended(self, session: SessionState) -> None:
        """Follow the end of a session."""

    def on_granted(self, session: SessionState, event: Granted) -> None:
        """Follow a budget that was raised."""


class EvaluatorState:
    """All sessions, with the ledger of the budgets and the marks that they share, and the grants.

    All but the grants are changed by `transitions` alone. `marks` is None where a policy has none.
    """

    __slots__ = ("grants", "hooks", "ledger", "marks", "sessions")

    def __init__(
        self, hooks: TransitionHooks, max_grants: int, marks: MarkStates | None = None
    ) -> None:
        self.sessions: dict[str, SessionState] = {}
        self.ledger = UsageLedger()
        self.marks = marks
        self.grants = GrantSet(max_grants)
        self.hooks = hooks
