"""Charges become draws: what a call takes from budgets, gives back, and which accounts end when."""

from __future__ import annotations

from collections.abc import Iterable

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.engine_state import EngineState
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.model.amounts import to_units
from policyguard.model.event import Charge, Granted

OWNED_SCOPES = ("session", "turn")
"""Scopes whose accounts end with the session or turn that owns them."""


def owner_session(key: str) -> str:
    """The id of the session that owns an account of such a scope."""
    return key.partition("\x1f")[0].partition("\x1e")[0]


def outlives_call(budget: CompiledBudget) -> bool:
    """Whether what is drawn from such an account is to be known as long as its session.

    Places in `concurrent` budgets are held by calls in flight, which are their own sessions'.
    """
    return budget.scope in OWNED_SCOPES and budget.kind != "concurrent"


def record_owner(session: SessionState, scope: str, budget: str, key: str) -> None:
    """Remember which accounts end with the session or turn that owns them."""
    if scope not in OWNED_SCOPES:
        return
    name = owner_session(key)
    owner: SessionState | None = session
    while owner is not None and owner.id != name:
        owner = owner.parent
    if owner is not None:
        owned = owner.usage_keys if scope == "session" else owner.turn_usage_keys
        owned[budget, key] = None


def apply_charge(
    evaluator: Evaluator, state: EngineState, session: SessionState, charge: Charge, at: int | None
) -> None:
    """Take what a charge says from its account, at `at` (ns)."""
    budget = evaluator.budgets.get(charge.budget)
    if budget is None:
        return
    account = state.ledger.get(charge.budget, charge.key)
    if account is None:
        if charge.amount < 0:
            return  # its turn or session is over: there is nothing to give back to
        account = state.ledger.get_or_create(charge.budget, charge.key)
        record_owner(session, budget.scope, charge.budget, charge.key)
    if budget.kind == "concurrent":
        account.running += 1
    else:
        account.charge(charge.amount, at, budget.within, budget.max_charges)


def grant_charge(evaluator: Evaluator, session: SessionState, event: Granted) -> Charge | None:
    """The account that a grant raises, and by how much; None where there is none to raise.

    Of several the nearest owner's: a parent's budget is raised through the parent.
    """
    budget = evaluator.budgets.get(event.budget)
    if budget is None:
        return None
    scopes = iter((event.key,)) if event.key else (key for _, key in budget.owners(session))
    key = next(scopes, None)
    return None if key is None else Charge(event.budget, key, to_units(event.amount) or 0)


def raise_limit(
    evaluator: Evaluator, state: EngineState, session: SessionState, charge: Charge
) -> None:
    """Raise an account."""
    record_owner(session, evaluator.budgets[charge.budget].scope, charge.budget, charge.key)
    state.ledger.get_or_create(charge.budget, charge.key).granted += charge.amount


def parent_charges(
    evaluator: Evaluator, session: SessionState, charges: Iterable[Charge]
) -> dict[str, tuple[Charge, ...]]:
    """Those of the charges that last, and concern accounts of other sessions: by session."""
    found: dict[str, tuple[Charge, ...]] = {}
    for charge in charges:
        budget = evaluator.budgets.get(charge.budget)
        if budget is None or not outlives_call(budget):
            continue
        owner = owner_session(charge.key)
        starts_a_clock = budget.kind == "time" and bool(budget.keys)
        if owner != session.id and (charge.amount or starts_a_clock):
            found[owner] = (*found.get(owner, ()), charge)
    return found


def refund(evaluator: Evaluator, state: EngineState, attempt: Attempt) -> None:
    """Give back all that an admitted call took: it did not run."""
    free_slots(evaluator, state, attempt)
    for charge in attempt.charges:
        account = state.ledger.get(charge.budget, charge.key)
        budget = evaluator.budgets.get(charge.budget)
        if account is None or budget is None or not charge.amount or budget.kind == "concurrent":
            continue
        account.refund(charge.amount, attempt.at, budget.within)


def free_slots(evaluator: Evaluator, state: EngineState, attempt: Attempt) -> None:
    """A call that is no longer running gives its places in `concurrent` budgets back."""
    for charge in attempt.charges:
        if _takes_slot(evaluator, charge):
            account = state.ledger.get(charge.budget, charge.key)
            if account is not None and account.running:
                account.running -= 1


def holds_slot(evaluator: Evaluator, attempt: Attempt) -> bool:
    """Whether a call holds a place in an `concurrent` budget."""
    return any(_takes_slot(evaluator, charge) for charge in attempt.charges)


def _takes_slot(evaluator: Evaluator, charge: Charge) -> bool:
    budget = evaluator.budgets.get(charge.budget)
    return budget is not None and budget.kind == "concurrent"
