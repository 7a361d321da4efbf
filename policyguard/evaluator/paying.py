"""Charges become draws: what a call takes from budgets, gives back, and which accounts end when."""

from __future__ import annotations

from collections.abc import Iterable

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.model.event import Charge, Granted
from policyguard.model.quantity import units

OWNED = ("session", "turn")
"""Scopes whose accounts end with the session or turn that owns them."""


def owner_of(key: str) -> str:
    """The id of the session that owns an account of such a scope."""
    return key.partition("\x1f")[0].partition("\x1e")[0]


def lasts(budget: Budget) -> bool:
    """Whether what is drawn from such an account is to be known as long as its session.

    Places in `at_once` budgets are held by calls in flight, which are their own sessions'.
    """
    return budget.scope in OWNED and budget.kind != "at_once"


def own(session: SessionState, scope: str, budget: str, key: str) -> None:
    """Remember which accounts end with the session or turn that owns them."""
    if scope not in OWNED:
        return
    name = owner_of(key)
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
        if charge.amount < 0:
            return  # its turn or session is over: there is nothing to give back to
        account = state.book.open(charge.budget, charge.key)
        own(session, budget.scope, charge.budget, charge.key)
    if budget.kind == "at_once":
        account.open += 1
    else:
        account.draw(charge.amount, at, budget.within, budget.most)


def raised(evaluator: Evaluator, session: SessionState, event: Granted) -> Charge | None:
    """The account that a grant raises, and by how much; None where there is none to raise.

    Of several the nearest owner's: a parent's budget is raised through the parent.
    """
    budget = evaluator.budgets.get(event.budget)
    if budget is None:
        return None
    scopes = iter((event.key,)) if event.key else (key for _, key in budget.scopes(session))
    key = next(scopes, None)
    return None if key is None else Charge(event.budget, key, units(event.amount) or 0)


def lift(evaluator: Evaluator, state: State, session: SessionState, charge: Charge) -> None:
    """Raise an account."""
    own(session, evaluator.budgets[charge.budget].scope, charge.budget, charge.key)
    state.book.open(charge.budget, charge.key).granted += charge.amount


def above(
    evaluator: Evaluator, session: SessionState, charges: Iterable[Charge]
) -> dict[str, tuple[Charge, ...]]:
    """Those of the charges that last, and concern accounts of other sessions: by session."""
    found: dict[str, tuple[Charge, ...]] = {}
    for charge in charges:
        budget = evaluator.budgets.get(charge.budget)
        if budget is None or not lasts(budget):
            continue
        owner = owner_of(charge.key)
        starts_a_clock = budget.kind == "time" and bool(budget.keys)
        if owner != session.id and (charge.amount or starts_a_clock):
            found[owner] = (*found.get(owner, ()), charge)
    return found


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
