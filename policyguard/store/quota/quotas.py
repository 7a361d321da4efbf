"""Purses: what scopes that processes share have used of their budgets, exactly.

A purse is an account and the *shares* that holders have on lease from it. What may still be drawn
is the limit, less what the account has, less what the shares reach to. Who asks and finds too
little takes back what others have and do not use: first from the dead, then from the living (see
`policyguard.store.quota.lease` for how). A new lease is a part of what is left, so leases shrink towards
the limit, and the last units are drawn one by one.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.protocol import Quota, QuotaKey, QuotaSpec
from policyguard.store.quota.backend import QuotaBackend
from policyguard.store.quota.handle import LeasedQuota
from policyguard.store.quota.lease import RESERVED
from policyguard.store.quota.transaction import QuotaTransaction


class SharedQuotas:
    """See `policyguard.store.protocol.Purses`; the same over whatever keeps the rows."""

    def __init__(self, backend: QuotaBackend) -> None:
        self._backend = backend
        self._opened: weakref.WeakSet[LeasedQuota] = weakref.WeakSet()
        self.charges_in_slots = not backend.is_durable
        """Whether the words of a share last as long as the rows do."""
        _instances.add(self)

    def open(self, key: QuotaKey, spec: QuotaSpec) -> LeasedQuota:
        """A hand in a purse."""
        purse = LeasedQuota(key, spec, self)
        self._opened.add(purse)
        return purse

    def try_charge_all(self, charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        """Draw these amounts, all or none."""
        asked = [(_as_leased_quota(purse), amount) for purse, amount in charges]
        for purse, _ in asked:
            purse.ceiling = -1  # until the answer is written down
        try:
            with self._backend.transaction():
                freed: set[int] = set()
                counts = [QuotaTransaction(self._backend, purse, at, freed) for purse, _ in asked]
                paid = all(
                    count.make_room(amount)
                    for count, (_, amount) in zip(counts, asked, strict=True)
                )
                for count, (_, amount) in zip(counts, asked, strict=True):
                    if paid:
                        count.charge(amount)
                    count.save()
        except BaseException:
            for purse, _ in asked:
                if purse.words is not None:
                    purse.words[RESERVED] = purse.reserved
            raise
        for count in counts:
            count.publish()
        return paid

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        """Bring `account` up to date."""
        vague = []
        with self._backend.transaction(write=False):
            for purse in quotas:
                count = QuotaTransaction(self._backend, _as_leased_quota(purse), at, set())
                if settle and count.needs_settling():
                    vague.append(_as_leased_quota(purse))
                else:
                    count.refresh_quota()
        for one in vague:
            with self._backend.transaction():
                count = QuotaTransaction(self._backend, one, at, set())
                count.settle()
                count.save()
            count.refresh_quota()

    def grant(self, key: QuotaKey, amount: int) -> None:
        """Raise the limit of a purse or of a whole scope."""
        with self._backend.transaction():
            account = self._backend.get_usage(key.budget, key.key) or BudgetUsage()
            account.granted += amount
            self._backend.put_usage(key.budget, key.key, account, None)

    def close(self, quotas: Sequence[Quota] | None = None) -> None:
        """Give back what is on lease; of all purses, where none are named."""
        ours = [_as_leased_quota(purse) for purse in (self._opened if quotas is None else quotas)]
        leased = [purse for purse in ours if purse.words is not None]
        if leased:
            for purse in leased:
                purse.ceiling = -1
            with self._backend.transaction():
                for purse in leased:
                    QuotaTransaction(self._backend, purse, None, set()).return_lease()
            for purse in leased:
                if not purse.has_reservation:
                    purse.drop_lease()
        if quotas is None and not any(purse.words is not None for purse in ours):
            self._backend.release_holder()

    def charge(self, quota: LeasedQuota, amount: int, at: int | None) -> None:
        """Count at once what no share can."""
        with self._backend.transaction():
            count = QuotaTransaction(self._backend, quota, at, set())
            count.add_usage(amount)
            if quota.transaction_count > 1:
                count.ensure_lease()
            count.save()
        count.publish(refresh=False)

    def reserve(self, quota: LeasedQuota, amount: int) -> None:
        """Hold something without a share so far."""
        with self._backend.transaction():
            count = QuotaTransaction(self._backend, quota, None, set())
            count.ensure_lease()[RESERVED] += amount
            count.save()
        count.publish(refresh=False)

    def after_fork(self) -> None:
        """The process is a forked child: the leases are its parent's."""
        for purse in self._opened:
            purse.drop_lease()
        self._backend.after_fork()


def _as_leased_quota(quota: Quota) -> LeasedQuota:
    if not isinstance(quota, LeasedQuota):
        raise TypeError("a purse of another store")
    return quota


_instances: weakref.WeakSet[SharedQuotas] = weakref.WeakSet()


def _after_fork() -> None:
    for purses in list(_instances):
        purses.after_fork()


os.register_at_fork(after_in_child=_after_fork)
