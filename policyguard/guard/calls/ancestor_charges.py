"""Charges of a session's ancestors, written into the ancestors' own journals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.charges import is_owned, negate_charges, parent_charges
from policyguard.evaluator.session_state import SessionState
from policyguard.journal.errors import JournalError
from policyguard.model.event import Charge, ChildCharged

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


class AncestorCharges:
    """Writes what one session charges to budgets of its ancestors."""

    def __init__(self, guard: Guard, state: SessionState) -> None:
        self._guard = guard
        self._state = state

    def write(
        self,
        charges: Iterable[Charge],
        at: int | None,
        raised_limits: Iterable[Charge] = (),
        written: list[ChildCharged] | None = None,
    ) -> None:
        """Write charges, and limits that were raised, of which ancestors own the budget.

        Events that were written are added to `written`, even if this raises. Raises `JournalError`,
        and `StoreError` if an event could not be anchored.
        """
        guard, state = self._guard, self._state
        if state.parent is None or not guard._has_audience:
            return
        written = [] if written is None else written
        charged = parent_charges(guard._evaluator, state, charges)
        raised = parent_charges(guard._evaluator, state, raised_limits, is_owned)
        for owner in {**charged, **raised}:
            event = ChildCharged(owner, at, state.id, charged.get(owner, ()), raised.get(owner, ()))
            written.append(event)
            try:
                guard._events.emit(event)
            except JournalError:
                written.pop()
                raise

    def settle(self, charges: Sequence[Charge], attempt: Attempt) -> None:
        """Charge for a result; what was reserved too much is refunded as of admission."""
        self.write([charge for charge in charges if charge.amount > 0], attempt.completed_at)
        self.write([charge for charge in charges if charge.amount < 0], attempt.at)


def reverse(event: ChildCharged) -> ChildCharged:
    """Return the event that undoes charges."""
    return replace(event, charges=negate_charges(event.charges))
