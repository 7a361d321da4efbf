"""Budgets per agent, user, project and globally: one quota for all processes of a store.

The evaluator works with what is known of a quota. A call that it would admit is then charged to
this process's lease, or else to the store; if other processes have used up the rest, the call is
evaluated again. What is known is at most a second old, and is read again before a refusal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger
from policyguard.evaluator.evaluation import Evaluation, GuardMode
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.plan import BoundPlan, Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.budgets.quota_names import QuotaName, quota_spec
from policyguard.guard.budgets.reservations import Reservation, Reservations
from policyguard.guard.learning.constraint_sync import POLL_INTERVAL
from policyguard.model.amounts import SCALE, to_units
from policyguard.model.decision import EvalError, Violation
from policyguard.model.event import Charge, Granted, Spent
from policyguard.store.errors import StoreError
from policyguard.store.quota.protocol import Quota, QuotaKey, QuotaSpec, QuotaStore


class _SharedBudget(msgspec.Struct, frozen=True):
    """A budget of a shared scope, with the name and the spec of its quotas."""

    budget: CompiledBudget
    name: str
    spec: QuotaSpec


class _OpenQuota(msgspec.Struct, eq=False):
    """A quota that this guard charges, known until `valid_until` (monotonic seconds)."""

    budget: str
    key: str
    quota: Quota
    spec: QuotaSpec
    valid_until: float = 0.0


class SharedBudgets:
    """Charges shared budgets. To be used under the guard's lock.

    Usage that cannot be written, since the store fails, is kept: `StoreError` is raised for the
    next calls until it is written.
    """

    def __init__(self, quotas: QuotaStore, evaluator: Evaluator, ledger: UsageLedger) -> None:
        self._quotas = quotas
        self._ledger = ledger
        self._max_quotas = evaluator.bounds.budget_keys
        self._budgets = {
            budget.id: _describe_budget(evaluator.name, budget)
            for budget in evaluator.budgets.values()
            if budget.is_shared
        }
        self._has_post_paid = any(shared.budget.post_paid for shared in self._budgets.values())
        self._has_held = any(shared.spec.reserves for shared in self._budgets.values())
        self._open_quotas: OrderedDict[tuple[str, str], _OpenQuota] = OrderedDict()
        self._charged_attempt: Attempt | None = None
        self._reservations = Reservations()
        self._unwritten_usage: dict[tuple[str, str], tuple[int, int]] = {}
        for id_ in self._budgets:
            ledger.stored_key_counts[id_] = 0

    def covers(self, plan: Plan) -> bool:
        """Whether calls of this kind charge shared budgets."""
        shared = self._budgets
        for budget in plan.budgets:  # noqa: SIM110 - twice as fast as `any`
            if budget.id in shared:
                return True
        return False

    def charge_at_once(self, attempt: Attempt) -> bool:
        """Charge a call that the evaluator allows without reservation, where memory suffices.

        That is nearly always: what is known of its quotas is fresh, and this process's leases have
        room. If not, nothing is charged; `evaluate` goes on.
        """
        self._charged_attempt = None
        if self._unwritten_usage:
            return False
        charges = []
        for charge in attempt.charges:
            if charge.budget in self._budgets:
                opened = self._open_quotas.get((charge.budget, charge.key))
                if opened is None or opened.valid_until < monotonic():
                    return False
                charges.append((opened, charge.amount))
        if charges and not self._charge_leases(charges, attempt.at):
            return False
        self._charged_attempt = attempt
        return True

    @staticmethod
    def make_repeatable(
        attempt: Attempt,
        errors: tuple[EvalError, ...],
        evaluator: Evaluator,
        state: EvaluatorState,
        bound_plan: BoundPlan,
        learned: Sequence[Violation],
        mode: GuardMode,
    ) -> Callable[[], Evaluation]:
        """Return a function that evaluates an attempt afresh each time it is called.

        `errors` are those that it had before it was first evaluated.
        """
        plan = bound_plan.plan

        def evaluate() -> Evaluation:
            attempt.charges, attempt.approval_charges, attempt.attempt_charges = (), (), ()
            attempt.errors = errors
            attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by
            return evaluator.evaluate(state, attempt, bound_plan, learned, mode)

        return evaluate

    def evaluate(
        self,
        attempt: Attempt,
        evaluation: Evaluation,
        evaluate_attempt: Callable[[], Evaluation],
        *,
        admit: bool,
    ) -> Evaluation:
        """Evaluate an attempt with the usage of all processes; with `admit`, charge it.

        `evaluation` is what this process knew. Raises `StoreError`.
        """
        self._charged_attempt = None
        if self._unwritten_usage:  # if it fails, what the call takes is kept too, if it is allowed
            while self._unwritten_usage:
                key_, usage = next(iter(self._unwritten_usage.items()))
                self._write_usage(*key_, *usage)
                del self._unwritten_usage[key_]
            evaluation = evaluate_attempt()
        charges = self._charges(attempt)
        now = monotonic()
        stale = [
            opened
            for opened, amount in charges
            if opened.valid_until < now or not (admit or opened.quota.has_room(amount))
        ]
        if stale:
            self._refresh(stale, attempt.at)
            evaluation = evaluate_attempt()
            charges = self._charges(attempt)
        if not evaluation.allowed and self._is_refused_by_budget(evaluation):
            evaluation = self._reevaluate(attempt, evaluate_attempt)
            charges = self._charges(attempt)
        if not admit or not evaluation.allowed:
            return evaluation
        if not self._charge(charges, evaluation, attempt.at):
            evaluation = evaluate_attempt()
            if not evaluation.allowed:
                return evaluation
            # Allowed beyond the limit: approved, or advised.
            self._charge_anyway(charges, attempt.at)
        self._charged_attempt = attempt
        return evaluation

    def admit(self, attempt: Attempt) -> None:
        """Note an admitted call. What could not be charged, since the store failed, is kept."""
        is_charged = self._charged_attempt is attempt
        self._charged_attempt = None
        if is_charged and not self._has_held:
            return
        reserved = []
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is None or not charge.amount:
                continue
            if not shared.spec.reserves:
                if not is_charged:
                    self._defer_usage(charge.budget, charge.key, charge.amount, attempt.at)
            elif is_charged:
                quota = self._get_quota(charge.budget, charge.key).quota
                reserved.append(Reservation(quota, charge.amount, shared.spec.counts_slots))
        self._reservations.hold(attempt, reserved)

    def complete(self, attempt: Attempt, charges: tuple[Charge, ...], still_running: bool) -> None:
        """Count what a completed call used, and release what it reserved.

        One whose time is over keeps its slots while it is `still_running`, until `free_slots`.
        """
        if self._has_post_paid:
            extra = {charge.budget: charge.amount for charge in charges}
            for charge in attempt.charges:
                shared = self._budgets.get(charge.budget)
                if shared is not None and shared.budget.post_paid:
                    amount = extra.get(charge.budget, 0)
                    if not attempt.is_given_up:  # then its reserve was counted as used
                        amount += charge.amount
                    self._record_usage(charge.budget, charge.key, amount, attempt.completed_at)
        self._reservations.end(attempt, but_slots=still_running and not attempt.is_given_up)

    def free_slots(self, attempt: Attempt) -> None:
        """Free the slots of a call that ran on after its time was over."""
        self._reservations.end(attempt)

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls."""
        for charge in event.charges:
            if charge.budget in self._budgets:
                self._record_usage(charge.budget, charge.key, charge.amount, event.at)

    def refund(self, attempt: Attempt) -> None:
        """Undo the charges of a call that did not run."""
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is not None and not shared.spec.reserves:
                self._record_usage(charge.budget, charge.key, -charge.amount, attempt.at)
        self._reservations.end(attempt)

    def abandon(self, attempt: Attempt, at: int | None) -> None:
        """Count what an unreported call reserved as used, except slots."""
        for charge in attempt.charges:
            shared = self._budgets.get(charge.budget)
            if shared is not None and shared.budget.post_paid:
                self._record_usage(charge.budget, charge.key, charge.amount, at)
        self._reservations.end(attempt)

    def release_held(self, session: SessionState) -> None:
        """Release what the calls of a session reserve: a resumed session does without."""
        for attempt in (*session.in_flight.values(), *session.timed_out.values()):
            self._reservations.end(attempt)

    def grant(self, session: SessionState, event: Granted) -> None:
        """Raise a budget for all processes. `StoreError` if that cannot be written."""
        shared = self._budgets.get(event.budget)
        if shared is None:
            return
        scope = session.scope_keys[shared.budget.scope]
        name = QuotaKey(shared.name, event.key or scope, scope)
        self._quotas.grant(name, to_units(event.amount) or 0)

    def invalidate(self) -> None:
        """Read all quotas again: a rebuilt session's charges are in the store already."""
        for opened in self._open_quotas.values():
            opened.valid_until = 0.0

    def _charges(self, attempt: Attempt) -> list[tuple[_OpenQuota, int]]:
        """Return the quotas a call charges, with the amounts."""
        shared = self._budgets
        return [
            (self._get_quota(charge.budget, charge.key), charge.amount)
            for charge in attempt.charges
            if charge.budget in shared
        ]

    def close(self) -> None:
        """Return the leases. Raises `StoreError`."""
        self._quotas.close([opened.quota for opened in self._open_quotas.values()])

    def _get_quota(self, budget: str, key: str) -> _OpenQuota:
        opened = self._open_quotas.get((budget, key))
        return self._open_quota(budget, key) if opened is None else opened

    def _open_quota(self, budget: str, key: str) -> _OpenQuota:
        """Open a quota; if there are too many, close the least recently used one."""
        shared = self._budgets[budget]
        name = QuotaKey(shared.name, key, key.partition("\x1f")[0])
        handle = self._quotas.open(name, shared.spec)
        if len(self._open_quotas) >= self._max_quotas:
            for key_, opened in self._open_quotas.items():
                if not opened.quota.has_reservation:
                    self._quotas.close([opened.quota])
                    del self._open_quotas[key_]
                    self._ledger.remove(*key_)
                    break
        opened = self._open_quotas[budget, key] = _OpenQuota(budget, key, handle, shared.spec)
        return opened

    def _is_refused_by_budget(self, evaluation: Evaluation) -> bool:
        return any(violation.id in self._budgets for violation in evaluation.violations)

    def _reevaluate(
        self, attempt: Attempt, evaluate_attempt: Callable[[], Evaluation]
    ) -> Evaluation:
        """Evaluate with the store's current usage, before a call is refused for it."""
        full = [id_ for id_ in self._budgets if self._ledger.stored_key_counts[id_]]
        if full:
            self._ledger.stored_key_counts.update(dict.fromkeys(full, 0))
            evaluate_attempt()  # to open quotas of keys for which there was no room
        self._refresh([opened for opened, _ in self._charges(attempt)], attempt.at, settle=True)
        return evaluate_attempt()

    def _refresh(self, quotas: list[_OpenQuota], at: int | None, *, settle: bool = False) -> None:
        self._quotas.refresh([opened.quota for opened in quotas], at, settle=settle)
        self._update_ledger(quotas)

    def _update_ledger(self, quotas: list[_OpenQuota]) -> None:
        """Copy what the store has returned into the ledger."""
        valid_until = monotonic() + POLL_INTERVAL
        for opened in quotas:
            budget, key, handle = opened.budget, opened.key, opened.quota
            if handle.keys_when_full:
                self._ledger.stored_key_counts[budget] = handle.keys_when_full
                self._ledger.remove(budget, key)
                self._open_quotas.pop((budget, key), None)
                continue
            self._ledger.set(budget, key, handle.usage)
            scope, keyed, _ = key.partition("\x1f")
            if keyed:
                self._ledger.get_or_create(budget, scope).granted = handle.granted
            opened.valid_until = valid_until
            if (budget, key) in self._open_quotas:
                self._open_quotas.move_to_end((budget, key))

    def _charge(
        self, charges: list[tuple[_OpenQuota, int]], evaluation: Evaluation, at: int | None
    ) -> bool:
        """Charge a call to all its quotas or to none. Returns whether it was charged."""
        excess: list[tuple[_OpenQuota, int]] = []
        if evaluation.violations or evaluation.would or evaluation.waived:
            excess = [
                (opened, amount) for opened, amount in charges if self._exceeds(opened, amount, at)
            ]
            charges = [charge for charge in charges if charge not in excess]
        if not self._charge_leases(charges, at):
            is_charged = self._quotas.try_charge_all(
                [(opened.quota, amount) for opened, amount in charges], at
            )
            self._update_ledger([opened for opened, _ in charges])
            if not is_charged:
                return False
        self._charge_anyway(excess, at)
        return True

    def _exceeds(self, quota: _OpenQuota, amount: int, at: int | None) -> bool:
        """Whether an allowed call takes more than is known to be left."""
        usage, spec = self._ledger.get(quota.budget, quota.key) or BudgetUsage(), quota.spec
        scope, keyed, _ = quota.key.partition("\x1f")
        parent = self._ledger.get(quota.budget, scope) if keyed else None
        granted = usage.granted + (parent.granted if parent is not None else 0)
        used = usage.running * SCALE if spec.counts_slots else usage.used_at(at, spec.within)
        return amount > spec.limit + granted - used

    def _charge_leases(self, charges: list[tuple[_OpenQuota, int]], at: int | None) -> bool:
        """Charge the leases of this process, if they suffice for all quotas."""
        if len(charges) == 1:
            return charges[0][0].quota.try_charge(charges[0][1], at)
        for opened, amount in charges:
            if not opened.quota.has_room(amount):
                return False
        for number, (opened, amount) in enumerate(charges):
            if not opened.quota.try_charge(amount, at):
                for other, charged in charges[:number]:
                    if other.spec.reserves:
                        other.quota.reserve(-charged)
                    else:
                        self._record_usage(other.budget, other.key, -charged, at)
                return False
        return True

    def _charge_anyway(self, charges: list[tuple[_OpenQuota, int]], at: int | None) -> None:
        """Charge beyond the limit: the policy allows the call all the same."""
        for opened, amount in charges:
            if not opened.spec.reserves:
                self._record_usage(opened.budget, opened.key, amount, at)
                continue
            with suppress(StoreError):  # a reservation would be released anyway
                opened.quota.reserve(amount)

    def _record_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Count usage, or keep it until the store can be written."""
        if amount:
            try:
                self._write_usage(budget, key, amount, at)
            except StoreError:
                self._defer_usage(budget, key, amount, at)

    def _write_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        self._get_quota(budget, key).quota.charge(amount, at)

    def _defer_usage(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Add usage to the pending writes, at the later of both times: windows keep it longer."""
        amount_before, at_before = self._unwritten_usage.get((budget, key), (0, 0))
        self._unwritten_usage[budget, key] = amount_before + amount, max(at_before, at or 0)


def _describe_budget(policy: str, budget: CompiledBudget) -> _SharedBudget:
    """Return a budget with the name and the spec of its quotas."""
    name = QuotaName(policy, budget.id, budget.kind, budget.scope, budget.within is not None)
    return _SharedBudget(budget, str(name), quota_spec(budget))
