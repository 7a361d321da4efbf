"""Shared budgets over hosts, by leases that need no fence.

A holder draws from its lease in memory. A lease that has run out counts *in full*: what its holder
still draws, however late, is paid for already. So no host need ask whether another still lives. The
holder's own term begins before it asks, and ends by a clock that goes on while a machine sleeps. A
holder that lives returns what it has not used before its term ends.

What dead holders take with them is bounded: a lease is at most a part of what is left, of what
leases may hold of the limit together, and of what its holder uses in half a term.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.errors import StoreError
from policyguard.store.postgres.database import Database
from policyguard.store.postgres.quota_handle import PostgresQuota, elapsed
from policyguard.store.postgres.quota_row import QuotaRow
from policyguard.store.quota.protocol import Quota, QuotaKey, QuotaSpec

_MARGIN = 0.05
"""The part of its term by which a holder stops earlier."""
_RENEWALS = 3
"""How often in a term reservations are renewed and old leases returned."""


class PostgresQuotas:
    """See `policyguard.store.quota.protocol.QuotaStore`."""

    def __init__(self, database: Database, term: float) -> None:
        self._database = database
        self.term = term
        self._opened: weakref.WeakSet[PostgresQuota] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._renewing: threading.Thread | None = None
        self._ended = threading.Event()
        _instances.append(weakref.ref(self))

    def open(self, key: QuotaKey, spec: QuotaSpec) -> PostgresQuota:
        quota = PostgresQuota(self, key, spec)
        self._opened.add(quota)
        return quota

    def try_charge_all(self, charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        amounts = {_own(quota): amount for quota, amount in charges}
        reserved = {quota: quota.reserved for quota in amounts}
        try:
            return self._charge_all(amounts, at)
        except BaseException:
            for quota, amount in reserved.items():
                quota.reserved = min(quota.reserved, amount)
            raise

    def _charge_all(self, amounts: dict[PostgresQuota, int], at: int | None) -> bool:
        asked_at = elapsed()
        with self._lock:
            with self._exchange(amounts, at) as rows:
                charged = all(
                    row.has_key_room() and row.has_room(amounts[row.quota]) for row in rows
                )
                seen = [(row, row.total()) for row in rows]
                leases = {}
                for row in rows:
                    if charged:
                        row.charge(amounts[row.quota])
                    if charged or not row.is_new:
                        leases[row.quota] = row.take_lease(amounts[row.quota])
            for row, total in seen:
                self._adopt(row, leases.get(row.quota, (0, 0)), asked_at)
                row.quota.usage = total
            return charged

    def charge(self, quota: PostgresQuota, amount: int, at: int | None) -> None:
        """Count in the database what no lease covers."""
        self._write([quota], at, amount)

    def renew(self, quotas: Iterable[PostgresQuota]) -> None:
        """Lease what is reserved for another term."""
        self._write(quotas, None, 0)

    def _write(self, quotas: Iterable[PostgresQuota], at: int | None, amount: int) -> None:
        asked_at = elapsed()
        with self._lock:
            leases = []
            with self._exchange(quotas, at) as rows:
                for row in rows:
                    row.add(amount)
                    leases.append(row.take_lease(max(0, amount)))
            for row, lease in zip(rows, leases, strict=True):
                self._adopt(row, lease, asked_at)

    def return_aging(self) -> None:
        """Return what is left of old leases before it counts, and renew what is reserved.

        Raises `StoreError`.
        """
        latest = elapsed() + self.term / 2
        for quota in [*self._opened]:
            if quota.reserved or (quota.lease and quota.until < latest):
                self._write([quota], None, 0)

    def _exchange(self, quotas: Iterable[PostgresQuota], at: int | None) -> _Exchange:
        return _Exchange(self, quotas, at)

    def _adopt(self, row: QuotaRow, lease: tuple[int, int], asked_at: float) -> None:
        """Use a lease, after the commit."""
        quota = row.quota
        quota.drop_lease()
        quota.lease, quota.leased = lease
        quota.spare = row.spare
        quota.asked_at = asked_at
        quota.until = asked_at + self.term * (1 - _MARGIN)
        quota.granted = row.granted
        if quota.lease and self._renewing is None:
            self._renewing = threading.Thread(
                target=_return_aging,
                args=(weakref.ref(self), self._ended, self.term / _RENEWALS),
                name="policyguard-leases",
                daemon=True,
            )
            self._renewing.start()

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        for quota in map(_own, quotas):
            row = QuotaRow(self._database, quota, at, self.term)
            with self._lock:
                with self._database.transaction():
                    row.read(lock=False)
                    row.has_key_room()
                total = row.total()
                if row.has_own_lease:
                    row.settle_drawn(total)
                quota.usage = total
                quota.granted = row.granted

    def settle(self, key: QuotaKey, spec: QuotaSpec, at: int) -> None:
        """Count the leases of a quota that have run out, in full, and end them."""
        self._write([PostgresQuota(self, key, spec)], at, 0)

    def grant(self, key: QuotaKey, amount: int) -> None:
        quota = PostgresQuota(self, key, QuotaSpec(limit=0))
        with self._lock, self._exchange([quota], None) as (row,):
            row.usage.granted += amount
            row.is_new = True  # saved even if nothing was charged
            row.save()

    def keys(self) -> list[QuotaKey]:
        rows = self._database.execute(
            'SELECT budget, key FROM quotas ORDER BY budget COLLATE "C", key COLLATE "C"'
        )
        return [QuotaKey(budget, key, key.partition("\x1f")[0]) for budget, key in rows]

    def reset(self, key: QuotaKey, spec: QuotaSpec) -> BudgetUsage:
        quota = PostgresQuota(self, key, spec)
        with self._lock, self._exchange([quota], None) as (row,):
            return row.reset()

    def close(self, quotas: Sequence[Quota] | None = None) -> None:
        """Return the leases of these quotas; by default of all."""
        chosen = [*map(_own, [*self._opened] if quotas is None else quotas)]
        if quotas is None:
            self._ended.set()
        leased = [quota for quota in chosen if quota.lease]
        if leased:
            self._write(leased, None, 0)

    def after_fork(self) -> None:
        """Give up the leases: they belong to the parent process."""
        self._lock = threading.RLock()
        self._renewing = None
        for quota in [*self._opened]:
            quota.drop_lease()
            quota.reserved = 0


class _Exchange:
    """Rows of several quotas, locked in one order, in one transaction.

    Nothing is drawn meanwhile. If the commit's answer is lost, the next exchange finds the lease
    and settles it, or it was settled.
    """

    def __init__(
        self, quotas_of: PostgresQuotas, quotas: Iterable[PostgresQuota], at: int | None
    ) -> None:
        database = quotas_of._database
        self._transaction = database.transaction()
        ordered = sorted(quotas, key=lambda quota: (quota.key.budget, quota.key.key))
        self._rows = [QuotaRow(database, quota, at, quotas_of.term) for quota in ordered]

    def __enter__(self) -> list[QuotaRow]:
        self._transaction.__enter__()
        try:
            for row in self._rows:
                row.quota.suspend()
                row.read(lock=True)
        except BaseException as error:
            self._transaction.__exit__(type(error), error, error.__traceback__)
            raise
        return self._rows

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        kind_of = None if error is None else type(error)
        at = None if error is None else error.__traceback__
        self._transaction.__exit__(kind_of, error, at)


def _own(quota: Quota) -> PostgresQuota:
    if not isinstance(quota, PostgresQuota):
        raise TypeError("the quota belongs to another kind of store")
    return quota


def _return_aging(
    quotas_of: weakref.ref[PostgresQuotas], ended: threading.Event, interval: float
) -> None:
    """Look at the leases until the store is closed or forgotten."""
    while not ended.wait(interval):
        quotas = quotas_of()
        if quotas is None:
            return
        with suppress(StoreError):  # the next call that is decided says so
            quotas.return_aging()
        del quotas


_instances: list[weakref.ref[PostgresQuotas]] = []


def _after_fork() -> None:
    for one in _instances:
        quotas = one()
        if quotas is not None:
            quotas.after_fork()


after_fork_in_child(_after_fork)
