"""Shared budgets over hosts, by leases that need no fence.

A holder draws from its lease in memory. A lease that has run out counts *in full*: what its holder
still draws, however late, is paid for already. So no host need ask whether another still lives. The
holder's own term begins before it asks, and ends by a clock that goes on while a machine sleeps.

What a dead holder takes with it is bounded: a lease is at most a part of what is left, of the
limit, and of what its holder uses in half a term.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Sequence

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.model.amounts import SCALE
from policyguard.store.errors import StoreError
from policyguard.store.postgres.database import Database
from policyguard.store.quota.protocol import Quota, QuotaKey, QuotaSpec
from policyguard.store.quota.stored_usage import decode_usage, encode_usage

_MARGIN = 0.05
"""The part of its term by which a holder stops earlier."""
_RENEWALS = 3
"""How often in a term a lease that holds reservations is renewed."""
_PARTS_OF_LIMIT = 80
"""A lease is at most this part of the limit: four holders that die lose 5 %."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _elapsed() -> float:
    return time.clock_gettime(_CLOCK)


class PostgresQuota:
    """See `policyguard.store.quota.protocol.Quota`. `lease` is the id of its lease, 0 for none."""

    def __init__(self, quotas: PostgresQuotas, key: QuotaKey, spec: QuotaSpec) -> None:
        self._quotas, self.key, self.spec = quotas, key, spec
        self.usage = BudgetUsage()
        self.granted = 0
        self.keys_when_full = 0
        self.reserved = 0
        self.lease, self.leased, self.until = 0, 0, 0.0
        self.drawn: list[tuple[int, int | None]] = []
        self.drawn_amount = 0
        self.asked_at = 0.0
        self._lock = threading.Lock()

    @property
    def has_reservation(self) -> bool:
        return self.reserved > 0

    def drop_lease(self) -> None:
        """Forget the lease: it is settled, or will count in full."""
        self.lease, self.leased, self.until = 0, 0, 0.0
        self.drawn, self.drawn_amount = [], 0

    def suspend(self) -> None:
        """Draw nothing more from the lease: it is about to be settled."""
        with self._lock:
            self.until = 0.0

    def has_room(self, amount: int) -> bool:
        taken = self.drawn_amount + self.reserved + amount
        return taken <= self.leased and _elapsed() < self.until

    def try_charge(self, amount: int, at: int | None) -> bool:
        with self._lock:
            if not self.has_room(amount):
                return False
            if amount and self.spec.reserves:
                self.reserved += amount
            elif amount:
                self._draw(amount, at)
            return True

    def charge(self, amount: int, at: int | None) -> None:
        with self._lock:
            if amount > 0 and self.has_room(amount):
                self._draw(amount, at)
                return
            if amount < 0 and (-amount, at) in self.drawn and _elapsed() < self.until:
                self.drawn.remove((-amount, at))
                self.drawn_amount += amount
                return
        self._quotas.charge(self, amount, at)

    def reserve(self, amount: int) -> None:
        with self._lock:
            self.reserved = max(0, self.reserved + amount)
            if amount < 0 or self.drawn_amount + self.reserved <= self.leased:
                return
        self._quotas.renew([self])

    def _draw(self, amount: int, at: int | None) -> None:
        self.drawn_amount += amount
        self.drawn.append((amount, at))


class _Row:
    """A quota's row in a transaction: its usage, and the leases of others that have not run out."""

    def __init__(
        self, database: Database, quota: PostgresQuota, at: int | None, term: float
    ) -> None:
        self._database, self.quota, self._at, self._term = database, quota, at, term
        self.key, self.spec = quota.key, quota.spec
        self.usage = BudgetUsage()
        self.is_new = True
        self.others: list[int] = []
        self.granted = 0
        self._changed = False

    def read(self, *, lock: bool) -> None:
        """Read the row; with `lock` settle what has run out and the holder's own lease."""
        database, key = self._database, self.key
        names = (key.budget, key.key)
        if lock:  # also where there is no row yet
            database.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s || E'\\x1d' || %s, 0))", names
            )
        rows = database.execute(_USAGE, names)
        self.is_new = not rows
        if rows:
            self.usage = decode_usage(database.name, rows[0][0])
        if key.key != key.scope:
            rows = database.execute(_USAGE, (key.budget, key.scope))
            self.granted = decode_usage(database.name, rows[0][0]).granted if rows else 0
        leases = database.execute(
            "SELECT id, amount, expires < clock_timestamp() FROM leases "
            "WHERE budget = %s AND key = %s",
            names,
        )
        gone = [id_ for id_, _, is_over in leases if is_over or (lock and id_ == self.quota.lease)]
        for id_, amount, is_over in leases:
            if id_ == self.quota.lease and lock and not is_over:
                self._settle_own()
            elif is_over and not self.spec.counts_slots:
                self._charge(int(amount), self._at)
            elif not is_over and id_ != self.quota.lease:
                self.others.append(int(amount))
        if lock and gone:
            database.execute("DELETE FROM leases WHERE id = ANY(%s)", (gone,))
        within = self.spec.within
        if self._at is not None and within is not None:
            self._changed |= self.usage.redate(self._at, within, self.spec.max_charges)

    def _settle_own(self) -> None:
        for amount, at in self.quota.drawn:
            self._charge(amount, at)

    def _charge(self, amount: int, at: int | None) -> None:
        if amount:
            self.usage.charge(amount, at, self.spec.within, self.spec.max_charges)
            self._changed = True

    def free(self) -> int:
        """Return what is neither used, leased by others nor reserved here."""
        limit = self.spec.limit + self.usage.granted + self.granted
        used = self.usage.used_at(self._at, self.spec.within)
        return limit - used - sum(self.others) - self.quota.reserved

    def charge(self, amount: int) -> None:
        """Count an amount that there is room for."""
        if self.usage.started_at is None and self._at is not None:
            self.usage.started_at = self._at
        self._changed = True
        if self.spec.reserves:
            self.quota.reserved += amount
        else:
            self._charge(amount, self._at)

    def add(self, amount: int) -> None:
        """Count usage beyond the limit, or refund it."""
        self._charge(amount, self._at)

    def take_lease(self, amount: int) -> tuple[int, int]:
        """Lease what is reserved and a part of what is free; return id and amount."""
        quota = self.quota
        extra = 0
        free = self.free()
        if amount > 0 and free > 0:
            now = _elapsed()
            pace = quota.drawn_amount / max(now - quota.asked_at, 1e-3) if quota.asked_at else 0.0
            most = max(8 * amount, int(pace * self._term / 2))
            holders = len(self.others) + 1
            extra = min(free // (2 * holders), most, self.spec.limit // _PARTS_OF_LIMIT)
            extra -= extra % amount
        leased = quota.reserved + max(0, extra)
        self.save()
        if leased <= 0:
            return 0, 0
        ((id_,),) = self._database.execute(
            "INSERT INTO leases (budget, key, amount, expires) VALUES "
            "(%s, %s, %s, clock_timestamp() + make_interval(secs => %s)) RETURNING id",
            (self.key.budget, self.key.key, leased, self._term),
        )
        return int(id_), leased

    def save(self) -> None:
        """Save the usage."""
        if not (self._changed or self.is_new):
            return
        within, latest = self.spec.within, self.usage.latest_at
        until = None if within is None or latest is None else latest + within
        self._database.execute(
            "INSERT INTO quotas (budget, key, usage, until) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (budget, key) "
            "DO UPDATE SET usage = excluded.usage, until = excluded.until",
            (self.key.budget, self.key.key, encode_usage(self.usage), until),
        )

    def total(self) -> BudgetUsage:
        """Return the usage as a guard sees it: what others have leased counts."""
        total = self.usage.copy()
        held = sum(self.others) + self.quota.reserved
        if self.spec.counts_slots:
            total.running += held // SCALE
        else:
            total.used += held
        return total

    def has_key_room(self) -> bool:
        """Whether a new quota fits the budget's number of keys; removes those that are over."""
        if not self.is_new:
            return True
        budget, most = self.key.budget, self.spec.max_keys
        for prunes in (self._at is not None, False):
            ((count,),) = self._database.execute(
                "SELECT count(*) FROM quotas WHERE budget = %s", (budget,)
            )
            if count < most:
                self.quota.keys_when_full = 0
                return True
            if prunes:
                self._database.execute(
                    "DELETE FROM quotas WHERE budget = %s AND until <= %s AND NOT EXISTS "
                    "(SELECT 1 FROM leases WHERE leases.budget = quotas.budget "
                    "AND leases.key = quotas.key)",
                    (budget, self._at),
                )
        self.quota.keys_when_full = int(count)
        return False


_USAGE = "SELECT usage FROM quotas WHERE budget = %s AND key = %s"


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
        asked_at = _elapsed()
        with self._lock, self._exchange(amounts, at) as rows:
            charged = all(
                row.has_key_room() and (not amounts[row.quota] or row.free() >= amounts[row.quota])
                for row in rows
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
        asked_at = _elapsed()
        with self._lock, self._exchange(quotas, at) as rows:
            leases = []
            for row in rows:
                row.add(amount)
                leases.append(row.take_lease(max(0, amount)))
        for row, lease in zip(rows, leases, strict=True):
            self._adopt(row, lease, asked_at)

    def _keep_reservations(self) -> None:
        """Renew leases with reservations until the store is closed."""
        while not self._ended.wait(self.term / _RENEWALS):
            held = [quota for quota in [*self._opened] if quota.reserved]
            try:
                if held:
                    self._write(held, None, 0)
            except StoreError:
                continue  # the next call that is decided says so

    def _exchange(self, quotas: Iterable[PostgresQuota], at: int | None) -> _Exchange:
        return _Exchange(self, quotas, at)

    def _adopt(self, row: _Row, lease: tuple[int, int], asked_at: float) -> None:
        """Use a lease, after the commit."""
        quota = row.quota
        quota.drop_lease()
        quota.lease, quota.leased = lease
        quota.asked_at = asked_at
        quota.until = asked_at + self.term * (1 - _MARGIN)
        quota.granted = row.granted
        if quota.reserved and self._renewing is None:
            self._renewing = threading.Thread(
                target=self._keep_reservations, name="policyguard-leases", daemon=True
            )
            self._renewing.start()

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        for quota in map(_own, quotas):
            row = _Row(self._database, quota, at, self.term)
            with self._database.transaction():
                row.read(lock=False)
                has_room = row.has_key_room()
            total = row.total()
            for amount, drawn_at in [*quota.drawn] if _elapsed() < quota.until else ():
                total.charge(amount, drawn_at, quota.spec.within, quota.spec.max_charges)
            quota.usage = total
            quota.granted = row.granted
            if has_room:
                quota.keys_when_full = 0

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
            before = row.usage
            self._database.execute(
                "DELETE FROM quotas WHERE budget = %s AND key = %s", (key.budget, key.key)
            )
        return before

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
        self._rows = [_Row(database, quota, at, quotas_of.term) for quota in ordered]

    def __enter__(self) -> list[_Row]:
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


_instances: list[weakref.ref[PostgresQuotas]] = []


def _after_fork() -> None:
    for one in _instances:
        quotas = one()
        if quotas is not None:
            quotas.after_fork()


after_fork_in_child(_after_fork)
