"""Shared quotas: the exact usage of budgets whose scopes processes share.

A quota is its settled usage and the leases that holders have on it. The free amount is the limit,
less the usage, less the ceilings of the leases. A holder that finds too little reclaims what others
do not use: first from the dead, then from the living (see `policyguard.store.quota.lease`). A new
lease is a fraction of the free amount, so leases shrink towards the limit, and the last units are
charged one by one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.quota.backend import QuotaBackend
from policyguard.store.quota.handle import LeasedQuota
from policyguard.store.quota.lease import RESERVED
from policyguard.store.quota.protocol import Quota, QuotaKey, QuotaSpec
from policyguard.store.quota.transaction import QuotaTransaction


class SharedQuotas:
    """See `policyguard.store.quota.protocol.QuotaStore`. Works with any backend."""

    def __init__(self, backend: QuotaBackend) -> None:
        self._backend = backend
        self._opened: weakref.WeakSet[LeasedQuota] = weakref.WeakSet()
        _instances.add(self)

    def open(self, key: QuotaKey, spec: QuotaSpec) -> LeasedQuota:
        quota = LeasedQuota(
            key,
            spec,
            charges_in_slots=not self._backend.is_durable,
            charge_in_store=self._charge,
            reserve_in_store=self._reserve,
        )
        self._opened.add(quota)
        return quota

    def try_charge_all(self, charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        requests = [(_as_leased_quota(quota), amount) for quota, amount in charges]
        for quota, _ in requests:
            quota.ceiling = -1  # until the result is saved
        try:
            with self._backend.transaction():
                freed: set[int] = set()
                transactions = [
                    (QuotaTransaction(self._backend, quota, at, freed), amount)
                    for quota, amount in requests
                ]
                charged = all(transaction.make_room(amount) for transaction, amount in transactions)
                for transaction, amount in transactions:
                    if charged:
                        transaction.charge(amount)
                    transaction.save()
        except BaseException:
            for quota, _ in requests:
                if quota.words is not None:
                    quota.words[RESERVED] = quota.reserved
            raise
        for transaction, _ in transactions:
            transaction.publish()
        return charged

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        unsettled = []
        with self._backend.transaction(write=False):
            for quota in map(_as_leased_quota, quotas):
                transaction = QuotaTransaction(self._backend, quota, at, set())
                if settle and transaction.needs_settling():
                    unsettled.append(quota)
                else:
                    transaction.refresh_quota()
        for quota in unsettled:
            with self._backend.transaction():
                transaction = QuotaTransaction(self._backend, quota, at, set())
                transaction.settle()
                transaction.save()
            transaction.refresh_quota()

    def settle(self, key: QuotaKey, spec: QuotaSpec, at: int) -> None:
        """Count what dead holders of a quota's leases have used, and end their leases."""
        with self._backend.transaction():
            transaction = QuotaTransaction(self._backend, self.open(key, spec), at, set())
            transaction.settle()
            transaction.save()

    def grant(self, key: QuotaKey, amount: int) -> None:
        with self._backend.transaction():
            usage = self._backend.get_usage(key) or BudgetUsage()
            usage.granted += amount
            self._backend.put_usage(key, usage, None)

    def keys(self) -> list[QuotaKey]:
        keys = self._backend.keys()
        return [QuotaKey(budget, key, key.partition("\x1f")[0]) for budget, key in keys]

    def reset(self, key: QuotaKey, spec: QuotaSpec) -> BudgetUsage:
        with self._backend.transaction():
            return QuotaTransaction(self._backend, self.open(key, spec), None, set()).reset()

    def close(self, quotas: Sequence[Quota] | None = None) -> None:
        """Return the leases of these quotas; by default of all."""
        closing = [
            _as_leased_quota(quota) for quota in (self._opened if quotas is None else quotas)
        ]
        leased = [quota for quota in closing if quota.words is not None]
        if leased:
            for quota in leased:
                quota.ceiling = -1
            with self._backend.transaction():
                for quota in leased:
                    QuotaTransaction(self._backend, quota, None, set()).return_lease()
            for quota in leased:
                if not quota.has_reservation:
                    quota.drop_lease()
        if quotas is None and not any(quota.words is not None for quota in closing):
            self._backend.release_holder()

    def _charge(self, quota: LeasedQuota, amount: int, at: int | None) -> None:
        """Count in the store what a lease cannot."""
        with self._backend.transaction():
            transaction = QuotaTransaction(self._backend, quota, at, set())
            if amount < 0:
                transaction.settle()  # another holder may have made the charge
            transaction.add_usage(amount)
            if quota.transaction_count > 1:
                transaction.ensure_lease()
            transaction.save()
        transaction.publish(refresh=False)

    def _reserve(self, quota: LeasedQuota, amount: int) -> None:
        """Reserve an amount for a holder without a lease."""
        with self._backend.transaction():
            transaction = QuotaTransaction(self._backend, quota, None, set())
            _, words = transaction.ensure_lease()
            words[RESERVED] += amount
            transaction.save()
        transaction.publish(refresh=False)

    def after_fork(self) -> None:
        """Give up the leases: they belong to the parent process."""
        for quota in self._opened:
            quota.drop_lease()
        self._backend.after_fork()


def _as_leased_quota(quota: Quota) -> LeasedQuota:
    if not isinstance(quota, LeasedQuota):
        raise TypeError("the quota belongs to another kind of store")
    return quota


_instances: weakref.WeakSet[SharedQuotas] = weakref.WeakSet()


def _after_fork() -> None:
    for quotas in list(_instances):
        quotas.after_fork()


after_fork_in_child(_after_fork)
