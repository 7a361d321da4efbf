"""Charges become draws: what a call takes from budgets, gives back, and which accounts end when."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.model.event import Charge


def own(session: SessionState, scope: str, budget: str, key: str) -> None:
    """Remember which accounts end with the session or turn that owns them."""
    if scope not in ("session", "turn"):
        return
    name = key.partition("\x1f")[0].partition("\x1e")[0]
    owner: SessionState | None = session
    while owner is not None and owner.id != name:
        owner = owner.parent
    if owner is not None:
        owned = owner.accounts if scope == "session" else owner.turn_accounts
        owned[budget, key] = None


def draw(
    evaluator: Evaluator, state: State, session: SessionState, charge: Charge, at: int | None
) -> None:
    """Take what a charge says from its account, at `at` (ns)."""
    budget = evaluator.budgets.get(charge.budget)
    if budget is None:
        return
    account = state.book.get(charge.budget, charge.key)
    if account is None:
        account = state.book.open(charge.budget, charge.key)
        own(session, budget.scope, charge.budget, charge.key)
    if budget.kind == "at_once":
        account.open += 1
    else:
        account.draw(charge.amount, at, budget.within, budget.most)


def undo(evaluator: Evaluator, state: State, attempt: Attempt) -> None:
    """Give back all that an admitted call took: it did not run."""
    free(evaluator, state, attempt)
    for charge in attempt.charges:
        account = state.book.get(charge.budget, charge.key)
        budget = evaluator.budgets.get(charge.budget)
        if account is None or budget is None or not charge.amount or budget.kind == "at_once":
            continue
        account.give_back(charge.amount, attempt.at, budget.within)


def free(evaluator: Evaluator, state: State, attempt: Attempt) -> None:
    """A call that is no longer running gives its places in `at_once` budgets back."""
    for charge in attempt.charges:
        if _takes_a_place(evaluator, charge):
            account = state.book.get(charge.budget, charge.key)
            if account is not None and account.open:
                account.open -= 1


def holds_a_place(evaluator: Evaluator, attempt: Attempt) -> bool:
    """Whether a call holds a place in an `at_once` budget."""
    return any(_takes_a_place(evaluator, charge) for charge in attempt.charges)


def _takes_a_place(evaluator: Evaluator, charge: Charge) -> bool:
    budget = evaluator.budgets.get(charge.budget)
    return budget is not None and budget.kind == "at_once"
