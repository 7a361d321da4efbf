"""Charges: what calls take from budgets and give back, and whose usage ends with whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.distinct import VALUE_MARK, DistinctValues
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.session_state import SessionState
from policyguard.model.amounts import to_units
from policyguard.model.event import Charge, Granted, Spent

OWNED_SCOPES = ("session", "turn", "batch")
"""Scopes whose usage ends with the session or turn that owns it, at the latest."""


def is_owned(budget: CompiledBudget) -> bool:
    """Whether a session owns each usage, so that a raised limit lasts as long as that."""
    return budget.scope in OWNED_SCOPES


def owner_session(key: str) -> str:
    """Return the id of the session that owns the usage under a key of such a scope."""
    return key.partition("\x1f")[0].partition("\x1e")[0]


def outlives_call(budget: CompiledBudget) -> bool:
    """Whether a charge lasts as long as its owner; slots are held by calls in flight only."""
    return is_owned(budget) and budget.kind != "concurrent"


def record_owner(session: SessionState, scope: str, budget: str, key: str) -> None:
    """Note with which session or turn a usage ends."""
    if scope not in OWNED_SCOPES:
        return
    name = owner_session(key)
    owner: SessionState | None = session
    while owner is not None and owner.id != name:
        owner = owner.parent
    if owner is not None:
        owned = {"session": owner.usage_keys, "turn": owner.turn_usage_keys}.get(scope)
        (owner.batch_usage_keys if owned is None else owned)[budget, key] = None


def forget_old_batches(state: EvaluatorState, session: SessionState, max_keys: int) -> None:
    """Forget the usage of the oldest batches, beyond as many as are kept."""
    while len(session.batch_usage_keys) > max_keys:
        oldest = next(iter(session.batch_usage_keys))
        del session.batch_usage_keys[oldest]
        state.ledger.remove(*oldest)


def apply_charge(
    evaluator: Evaluator,
    state: EvaluatorState,
    session: SessionState,
    charge: Charge,
    at: int | None,
) -> None:
    """Apply a charge at `at` (ns)."""
    budget = evaluator.budgets.get(charge.budget)
    if budget is None:
        return
    key, _, value = charge.key.partition(VALUE_MARK)
    usage = state.ledger.get(charge.budget, key)
    if usage is None:
        if charge.amount < 0:
            return  # its turn or session is over: nothing to refund
        usage = state.ledger.get_or_create(charge.budget, key)
        record_owner(session, budget.scope, charge.budget, key)
        if budget.scope == "batch":
            forget_old_batches(state, session, evaluator.bounds.window_entries)
    if value:
        _count_value(usage, charge.amount, value, at, budget)
    elif budget.kind == "concurrent":
        usage.running += 1
    else:
        usage.charge(charge.amount, at, budget.within, budget.max_charges)


def _count_value(
    usage: BudgetUsage, amount: int, value: str, at: int | None, budget: CompiledBudget
) -> None:
    """Count one more use of a value, or with a negative amount take one back."""
    if usage.values is None:
        usage.values = DistinctValues()
    if amount < 0:
        usage.values.remove(value)
    else:
        usage.values.add(value, at, budget.within, budget.max_keys)


def spend_charges(evaluator: Evaluator, session: SessionState, event: Spent) -> tuple[Charge, ...]:
    """Return what the model's own use charges: to budgets of all calls only."""
    charges = []
    spent = {"tokens": event.tokens, "cost": event.cost, "model_calls": event.model_calls}
    for budget in evaluator.budgets.values():
        amount = spent.get(budget.kind, 0)
        if amount and not budget.selective:
            units = to_units(amount)
            if units is None:
                units = budget.max  # an invalid amount uses up the budget
            charges += [Charge(budget.id, key, units) for _, key in budget.owners(session)]
    return tuple(charges)


def grant_charge(evaluator: Evaluator, session: SessionState, event: Granted) -> Charge | None:
    """Return which usage a grant raises, and by how much; None for none.

    Of several owners the nearest counts: a parent's budget is raised through the parent.
    """
    budget = evaluator.budgets.get(event.budget)
    if budget is None:
        return None
    keys = iter((event.key,)) if event.key else (key for _, key in budget.owners(session))
    key = next(keys, None)
    return None if key is None else Charge(event.budget, key, to_units(event.amount) or 0)


def raise_limit(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, charge: Charge
) -> None:
    """Raise the limit of one usage."""
    record_owner(session, evaluator.budgets[charge.budget].scope, charge.budget, charge.key)
    state.ledger.raise_limit(charge.budget, charge.key, charge.amount)


def parent_charges(
    evaluator: Evaluator,
    session: SessionState,
    charges: Iterable[Charge],
    lasts: Callable[[CompiledBudget], bool] = outlives_call,
) -> dict[str, tuple[Charge, ...]]:
    """Return the charges to other sessions that last, by session."""
    by_owner: dict[str, tuple[Charge, ...]] = {}
    for charge in charges:
        budget = evaluator.budgets.get(charge.budget)
        if budget is None or not lasts(budget):
            continue
        owner = owner_session(charge.key)
        starts_clock = budget.kind == "time" and bool(budget.keys)
        if owner != session.id and (charge.amount or starts_clock):
            by_owner[owner] = (*by_owner.get(owner, ()), charge)
    return by_owner


def refund(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt) -> None:
    """Refund all charges of a call that did not run."""
    free_slots(evaluator, state, attempt)
    for charge in attempt.charges:
        key, _, value = charge.key.partition(VALUE_MARK)
        usage = state.ledger.get(charge.budget, key)
        budget = evaluator.budgets.get(charge.budget)
        if usage is None or budget is None or not charge.amount or budget.kind == "concurrent":
            continue
        if value:
            _count_value(usage, -charge.amount, value, attempt.at, budget)
            continue
        usage.refund(charge.amount, attempt.at, budget.within)


def free_slots(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt) -> None:
    """Free the slots of a call that is no longer running, unless they were when it was given up."""
    if attempt.is_given_up:
        return
    for charge in attempt.charges:
        if _takes_slot(evaluator, charge):
            usage = state.ledger.get(charge.budget, charge.key)
            if usage is not None and usage.running:
                usage.running -= 1


def free_timed_out_slots(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt) -> None:
    """Free the slots of a call whose time was over, and that has ended or is taken to have."""
    free_slots(evaluator, state, attempt)
    state.hooks.on_timed_out_ended(attempt)


def holds_slot(evaluator: Evaluator, attempt: Attempt) -> bool:
    """Whether a call holds a slot."""
    return any(_takes_slot(evaluator, charge) for charge in attempt.charges)


def _takes_slot(evaluator: Evaluator, charge: Charge) -> bool:
    budget = evaluator.budgets.get(charge.budget)
    return budget is not None and budget.kind == "concurrent"


class RebuildLedger(UsageLedger, eq=False, kw_only=True):
    """A view of a ledger for rebuilding a session: it drops the charges to the session's ancestors.

    The ancestors' own journals hold those charges (`ChildCharged`).
    """

    budgets: Mapping[str, CompiledBudget]
    session: str

    def get(self, budget: str, key: str) -> BudgetUsage | None:
        """Return the usage; of another session an empty one."""
        return BudgetUsage() if self._is_foreign(budget, key) else super().get(budget, key)

    def get_or_create(self, budget: str, key: str) -> BudgetUsage:
        """Return the usage, new where there is none; of another session one that is not kept."""
        if self._is_foreign(budget, key):
            return BudgetUsage()
        return super().get_or_create(budget, key)

    def raise_limit(self, budget: str, key: str, amount: int) -> None:
        """Raise a limit; that of another session stands in its journal."""
        compiled = self.budgets.get(budget)
        if compiled is None or not is_owned(compiled) or owner_session(key) == self.session:
            super().raise_limit(budget, key, amount)

    def _is_foreign(self, budget: str, key: str) -> bool:
        compiled = self.budgets.get(budget)
        if compiled is None or not outlives_call(compiled):
            return False
        return owner_session(key) != self.session


def negate_charges(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """Return the charges that undo these."""
    return tuple([replace(charge, amount=-charge.amount) for charge in charges])
