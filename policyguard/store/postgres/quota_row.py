"""A shared budget's row in a transaction: what is used, leased and free."""

from __future__ import annotations

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.model.amounts import SCALE
from policyguard.store.postgres.database import Database
from policyguard.store.postgres.quota_handle import PostgresQuota, elapsed
from policyguard.store.quota.stored_usage import decode_usage, encode_usage

_PARTS_OF_LIMIT = 20
"""All leases together are at most this part of the limit, so that however many die lose 5 %."""
_USAGE = "SELECT usage FROM quotas WHERE budget = %s AND key = %s"


class QuotaRow:
    """A quota's row in a transaction: its usage, and the leases of others that have not run out."""

    def __init__(
        self, database: Database, quota: PostgresQuota, at: int | None, term: float
    ) -> None:
        self._database, self.quota, self._at, self._term = database, quota, at, term
        self.key, self.spec = quota.key, quota.spec
        self.usage = BudgetUsage()
        self.is_new = True
        self.others: list[int] = []
        self.has_own_lease = False
        self.granted = 0
        self.spare = 0
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
        gone = [id_ for id_, _, is_over in leases if is_over or id_ == self.quota.lease]
        for id_, amount, is_over in leases:
            if id_ == self.quota.lease:  # whose use is known, and while it is there not counted
                self.has_own_lease = True
                if lock:
                    self._settle_own()
            elif not is_over:
                self.others.append(int(amount))
            elif not self.spec.counts_slots:
                self._charge(int(amount), self._at)
        if lock and gone:
            database.execute("DELETE FROM leases WHERE id = ANY(%s)", (gone,))
        within = self.spec.within
        if self._at is not None and within is not None:
            self._changed |= self.usage.redate(self._at, within, self.spec.max_charges)

    def _settle_own(self) -> None:
        self._changed |= bool(self.quota.drawn)
        self.settle_drawn(self.usage)

    def settle_drawn(self, usage: BudgetUsage) -> None:
        """Count in `usage` what the holder has drawn from its lease."""
        for amount, at in [*self.quota.drawn]:
            usage.settle(amount, at, self._at, self.spec.within, self.spec.max_charges)

    def _charge(self, amount: int, at: int | None) -> None:
        if amount:
            self.usage.charge(amount, at, self.spec.within, self.spec.max_charges)
            self._changed = True

    def free(self) -> int:
        """Return what is neither used, leased by others nor reserved here."""
        limit = self.spec.limit + self.usage.granted + self.granted
        used = self.usage.used_at(self._at, self.spec.within)
        return limit - used - sum(self.others) - self.quota.reserved

    def has_room(self, amount: int) -> bool:
        """Return whether `amount` may be charged."""
        return not amount or self.free() >= amount

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
        holders = len(self.others) + 1
        leasable = self.spec.limit // _PARTS_OF_LIMIT - sum(self.others)
        self.spare = max(0, min(self.free() // (2 * holders), leasable // 2))
        extra = 0
        if amount > 0:
            now = elapsed()
            pace = quota.drawn_amount / max(now - quota.asked_at, 1e-3) if quota.asked_at else 0.0
            extra = min(self.spare, max(8 * amount, int(pace * self._term / 2)))
            extra -= extra % amount
        leased = quota.reserved + extra
        self._changed |= leased > 0  # the key may have made room for another in this transaction
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
        until = self.usage.expires_at(self.spec.within)
        self._database.execute(
            "INSERT INTO quotas (budget, key, usage, until) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (budget, key) "
            "DO UPDATE SET usage = excluded.usage, until = excluded.until",
            (self.key.budget, self.key.key, encode_usage(self.usage), until),
        )

    def reset(self) -> BudgetUsage:
        """Forget usage and grants, and return what they were; a key with leases keeps its place."""
        before, self.usage = self.usage, BudgetUsage()
        if self.others:
            self._changed = True
            self.save()
        else:
            self._database.execute(
                "DELETE FROM quotas WHERE budget = %s AND key = %s", (self.key.budget, self.key.key)
            )
        return before

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
        """Whether a new quota fits the budget's number of keys; removes those that are over.

        Keys of whole scopes always fit.
        """
        self.quota.keys_when_full = 0
        if not self.is_new or self.key.key == self.key.scope:
            return True
        budget, most = self.key.budget, self.spec.max_keys
        for prunes in (self._at is not None, False):
            ((count,),) = self._database.execute(
                "SELECT count(*) FROM quotas WHERE budget = %s", (budget,)
            )
            if count < most:
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
