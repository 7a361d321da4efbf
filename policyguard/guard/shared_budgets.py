"""Budgets of agents, users, projects and everybody: one purse for all processes of a store.

The evaluator judges by what is known of a purse. What it would admit is then drawn from what this
process has on lease, or asked of the store; where others have drawn the rest, it judges once more.
What is known is at most a second old, and fresh where a call is refused for it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger
from policyguard.evaluator.evaluation import ALLOWED, Evaluation
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.constraint_sync import POLL_INTERVAL
from policyguard.model.amounts import SCALE, to_units
from policyguard.model.decision import Violation
from policyguard.model.event import Charge, Granted, Spent
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Quota, QuotaKey, QuotaSpec, QuotaStore

EvaluateFn = Callable[[Sequence[Violation]], Evaluation]
"""Judges an attempt, given what was learned against it."""

_LOCAL_SCOPES = ("turn", "session")
"""Scopes that belong to one process."""


class _SharedBudget(msgspec.Struct, frozen=True):
    """A budget of a shared scope, and what its purses are called and hold."""

    budget: CompiledBudget
    name: str
    spec: QuotaSpec


class _OpenQuota:
    """A purse that this guard draws on, and until when (monotonic seconds) its figures are good."""

    __slots__ = ("budget", "key", "quota", "spec", "valid_until")

    def __init__(self, budget: str, key: str, quota: Quota, spec: QuotaSpec) -> None:
        self.budget = budget
        self.key = key
        self.quota = quota
        self.spec = spec
        self.valid_until = 0.0


class SharedBudgets:
    """Draws on shared budgets. To be used under the guard's lock.

    Whatever has to be counted and cannot be, since the store fails, is owed: no other call is
    judged before it has been paid. `StoreError` says so.
    """

    def __init__(self, quotas: QuotaStore, evaluator: Evaluator, ledger: UsageLedger) -> None:
        self._quotas = quotas
        self._ledger = ledger
        self._max_quotas = evaluator.bounds.budget_keys
        self._budgets = {
            budget.id: _describe_budget(evaluator.name, budget)
            for budget in evaluator.budgets.values()
            if budget.scope not in _LOCAL_SCOPES
        }
        self._has_post_paid = any(one.budget.post_paid for one in self._budgets.values())
        self._has_held = any(one.spec.reserves for one in self._budgets.values())
        self._open_quotas: OrderedDict[tuple[str, str], _OpenQuota] = OrderedDict()
        self._charged_attempt: Attempt | None = None
        self._reservations: dict[tuple[str, str], list[tuple[Quota, int]]] = {}
        self._unwritten_usage: dict[tuple[str, str], tuple[int, int]] = {}
        for id_ in self._budgets:
            ledger.stored_key_counts[id_] = 0

    def covers(self, plan: Plan) -> bool:
        """Whether calls of this kind draw on shared budgets."""
        shared = self._budgets
        for budget in plan.budgets:  # noqa: SIM110 - half as long as `any`, at every call
            if budget.id in shared:
                return True
        return False

    def evaluate(
        self, attempt: Attempt, evaluate_attempt: Callable[[], Evaluation], *, admit: bool
    ) -> Evaluation:
        """The verdict with what all processes have drawn; with `admit` the call is paid."""
        self._charged_attempt = None
        while self._unwritten_usage:
            place, debt = next(iter(self._unwritten_usage.items()))
            self._write_usage(*place, *debt)
            del self._unwritten_usage[place]
        verdict = evaluate_attempt()
        draws = self._charges(attempt)
        now = time.monotonic()
        late = [
            hand
            for hand, amount in draws
            if hand.valid_until < now or not (admit or hand.quota.has_room(amount))
        ]
        if admit and not late and verdict is ALLOWED and self._charge_leases(draws, attempt.at):
            self._charged_attempt = attempt
            return verdict
        if late:
            self._refresh(late, attempt.at)
            verdict = evaluate_attempt()
            draws = self._charges(attempt)
        if not verdict.allowed and self._is_refused_by_budget(verdict):
            verdict = self._reevaluate(attempt, evaluate_attempt)
            draws = self._charges(attempt)
        if not admit or not verdict.allowed:
            return verdict
        if not self._charge(draws, verdict, attempt.at):
            verdict = evaluate_attempt()
            if not verdict.allowed:
                return verdict
            self._charge_anyway(draws, attempt.at)  # it was approved, or is only advised against
        self._charged_attempt = attempt
        return verdict

    def admit(self, attempt: Attempt) -> None:
        """A call was let through. What it could not pay, since the store failed, is owed."""
        paid = self._charged_attempt is attempt
        self._charged_attempt = None
        if paid and not self._has_held:
            return
        held = []
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is None or not charge.amount:
                continue
            if not shared.spec.reserves:
                if not paid:
                    self._defer_usage(charge.budget, charge.key, charge.amount, attempt.at)
            elif paid:
                held.append((self._get_quota(charge.budget, charge.key).quota, charge.amount))
        if held:
            self._reservations[attempt.session.id, attempt.id] = held

    def complete(self, attempt: Attempt, charges: tuple[Charge, ...], at: int | None) -> None:
        """A call has its result: what it used is known, and nothing is held for it any more."""
        if self._has_post_paid:
            further = {charge.budget: charge.amount for charge in charges}
            for charge in attempt.charges:
                shared = self._budgets.get(charge.budget)
                if shared is not None and shared.budget.post_paid:
                    amount = charge.amount + further.get(charge.budget, 0)
                    self._record_usage(charge.budget, charge.key, amount, at)
        self._end_reservations(attempt)

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls."""
        for charge in event.charges:
            if charge.budget in self._budgets:
                self._record_usage(charge.budget, charge.key, charge.amount, event.at)

    def refund(self, attempt: Attempt) -> None:
        """A call did not run: what it drew is given back."""
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is not None and not shared.spec.reserves:
                self._record_usage(charge.budget, charge.key, -charge.amount, attempt.at)
        self._end_reservations(attempt)

    def abandon(self, attempt: Attempt, at: int | None) -> None:
        """Nobody will report a call: what was held for it counts as used, but for places."""
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is not None and shared.budget.post_paid:
                self._record_usage(charge.budget, charge.key, charge.amount, at)
        self._end_reservations(attempt)

    def release_held(self, session: SessionState) -> None:
        """Release what the calls of a session hold: whoever resumes it goes on without."""
        for attempt in (*session.in_flight.values(), *session.timed_out.values()):
            self._end_reservations(attempt)

    def grant(self, session: SessionState, event: Granted) -> None:
        """Raise a budget for every process. `StoreError` where that cannot be written."""
        shared = self._budgets.get(event.budget)
        if shared is None:
            return
        scope = session.scope_keys[shared.budget.scope]
        name = QuotaKey(shared.name, event.key or scope, scope)
        self._quotas.grant(name, to_units(event.amount) or 0)

    def invalidate(self) -> None:
        """What is known may be wrong: a session was rebuilt, whose draws the store has long had."""
        for hand in self._open_quotas.values():
            hand.valid_until = 0.0

    def _charges(self, attempt: Attempt) -> list[tuple[_OpenQuota, int]]:
        """What a call draws on which purses."""
        shared = self._budgets
        return [
            (self._get_quota(charge.budget, charge.key), charge.amount)
            for charge in attempt.charges
            if charge.budget in shared
        ]

    def close(self) -> None:
        """Give back what is on lease. Raises `StoreError`."""
        self._quotas.close([hand.quota for hand in self._open_quotas.values()])

    def _get_quota(self, budget: str, key: str) -> _OpenQuota:
        hand = self._open_quotas.get((budget, key))
        return self._open_quota(budget, key) if hand is None else hand

    def _open_quota(self, budget: str, key: str) -> _OpenQuota:
        """Another purse; where there are too many, one that was not used of late is closed."""
        shared = self._budgets[budget]
        name = QuotaKey(shared.name, key, key.partition("\x1f")[0])
        purse = self._quotas.open(name, shared.spec)
        if len(self._open_quotas) >= self._max_quotas:
            for place, hand in self._open_quotas.items():
                if not hand.quota.has_reservation:
                    self._quotas.close([hand.quota])
                    del self._open_quotas[place]
                    self._ledger.remove(*place)
                    break
        hand = self._open_quotas[budget, key] = _OpenQuota(budget, key, purse, shared.spec)
        return hand

    def _is_refused_by_budget(self, verdict: Evaluation) -> bool:
        return any(violation.id in self._budgets for violation in verdict.violations)

    def _reevaluate(
        self, attempt: Attempt, evaluate_attempt: Callable[[], Evaluation]
    ) -> Evaluation:
        """Judge by what stands in the store now, before anybody is refused for it."""
        full = [id_ for id_ in self._budgets if self._ledger.stored_key_counts[id_]]
        if full:
            self._ledger.stored_key_counts.update(dict.fromkeys(full, 0))
            evaluate_attempt()  # for what it draws under keys for which there was no room
        self._refresh([hand for hand, _ in self._charges(attempt)], attempt.at, settle=True)
        return evaluate_attempt()

    def _refresh(self, quotas: list[_OpenQuota], at: int | None, *, settle: bool = False) -> None:
        self._quotas.refresh([hand.quota for hand in quotas], at, settle=settle)
        self._update_ledger(quotas)

    def _update_ledger(self, quotas: list[_OpenQuota]) -> None:
        """Have in the book what the store has said."""
        good = time.monotonic() + POLL_INTERVAL
        for hand in quotas:
            budget, key, purse = hand.budget, hand.key, hand.quota
            if purse.keys_when_full:
                self._ledger.stored_key_counts[budget] = purse.keys_when_full
                self._ledger.remove(budget, key)
                self._open_quotas.pop((budget, key), None)
                continue
            self._ledger.set(budget, key, purse.usage)
            scope, keyed, _ = key.partition("\x1f")
            if keyed:
                self._ledger.get_or_create(budget, scope).granted = purse.granted
            hand.valid_until = good
            if (budget, key) in self._open_quotas:
                self._open_quotas.move_to_end((budget, key))

    def _charge(
        self, charges: list[tuple[_OpenQuota, int]], verdict: Evaluation, at: int | None
    ) -> bool:
        """Draw what the call takes, all or nothing."""
        beyond: list[tuple[_OpenQuota, int]] = []
        if verdict.violations or verdict.would:
            beyond = [(hand, amount) for hand, amount in charges if self._exceeds(hand, amount, at)]
            charges = [draw for draw in charges if draw not in beyond]
        if not self._charge_leases(charges, at):
            paid = self._quotas.try_charge_all(
                [(hand.quota, amount) for hand, amount in charges], at
            )
            self._update_ledger([hand for hand, _ in charges])
            if not paid:
                return False
        self._charge_anyway(beyond, at)
        return True

    def _exceeds(self, quota: _OpenQuota, amount: int, at: int | None) -> bool:
        """Whether a call that the policy lets run takes more than is left, as far as is known here.

        Then nobody needs to be asked.
        """
        account, terms = self._ledger.get(quota.budget, quota.key) or BudgetUsage(), quota.spec
        scope, keyed, _ = quota.key.partition("\x1f")
        above = self._ledger.get(quota.budget, scope) if keyed else None
        granted = account.granted + (above.granted if above is not None else 0)
        used = account.running * SCALE if terms.counts_slots else account.used_at(at, terms.within)
        return amount > terms.limit + granted - used

    def _charge_leases(self, charges: list[tuple[_OpenQuota, int]], at: int | None) -> bool:
        """Draw from what is on lease, if it is enough everywhere."""
        if len(charges) > 1:
            for hand, amount in charges:
                if not hand.quota.has_room(amount):
                    return False
        for number, (hand, amount) in enumerate(charges):
            if not hand.quota.try_charge(amount, at):
                for one, drawn in charges[:number]:
                    if one.spec.reserves:
                        one.quota.reserve(-drawn)
                    else:
                        self._record_usage(one.budget, one.key, -drawn, at)
                return False
        return True

    def _charge_anyway(self, charges: list[tuple[_OpenQuota, int]], at: int | None) -> None:
        """Draw although it is too much: the policy lets the call run all the same."""
        for hand, amount in charges:
            if not hand.spec.reserves:
                self._record_usage(hand.budget, hand.key, amount, at)
                continue
            with suppress(StoreError):  # what cannot be held is not owed: it would come back anyway
                hand.quota.reserve(amount)

    def _end_reservations(self, attempt: Attempt) -> None:
        if self._reservations:
            for purse, amount in self._reservations.pop((attempt.session.id, attempt.id), ()):
                purse.reserve(-amount)

    def _record_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Count what was used, or owe it."""
        if amount:
            try:
                self._write_usage(budget, key, amount, at)
            except StoreError:
                self._defer_usage(budget, key, amount, at)

    def _write_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        self._get_quota(budget, key).quota.charge(amount, at)

    def _defer_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Debts to one purse become one, as of the latest: a window forgets it late, not early."""
        owed, then = self._unwritten_usage.get((budget, key), (0, 0))
        self._unwritten_usage[budget, key] = owed + amount, max(then, at or 0)


def open_shared_budgets(
    quotas: QuotaStore | None, evaluator: Evaluator, ledger: UsageLedger
) -> SharedBudgets | None:
    """Who draws on a policy's shared budgets; None where there are none, or no store."""
    if quotas is None or all(
        budget.scope in _LOCAL_SCOPES for budget in evaluator.budgets.values()
    ):
        return None
    return SharedBudgets(quotas, evaluator, ledger)


def make_repeatable(
    attempt: Attempt, plan: Plan, learned: Sequence[Violation], evaluate: EvaluateFn
) -> Callable[[], Evaluation]:
    """Judge an attempt as if it had not been judged before, as often as is wanted."""
    known = attempt.errors

    def again() -> Evaluation:
        attempt.charges, attempt.approval_charges, attempt.attempt_charges = (), (), ()
        attempt.errors = known
        attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by
        return evaluate(learned)

    return again


def _describe_budget(policy: str, budget: CompiledBudget) -> _SharedBudget:
    """A purse is a policy's: another policy may have an unrelated budget of the same name.

    Nor does a budget go on with figures that meant something else.
    """
    span = " in a window" if budget.within is not None else ""
    places = budget.kind == "concurrent"
    return _SharedBudget(
        budget,
        f"{policy}/{budget.id}: {budget.kind} per {budget.scope}{span}",
        QuotaSpec(
            limit=budget.max,
            within=budget.within,
            reserves=places or budget.post_paid,
            counts_slots=places,
            max_charges=budget.max_charges,
            max_keys=budget.max_keys,
        ),
    )
