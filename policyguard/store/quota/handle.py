"""A holder's handle on a quota: it charges its lease without a lock, a clock or a transaction."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.quota.lease import (
    COUNT,
    ID,
    LOG_CAPACITY,
    MAX_AMOUNT,
    RESERVED,
    USED,
    QuotaLease,
    SlotWords,
    has_logged,
    log_charge,
)
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec


class LeasedQuota:
    """See `policyguard.store.quota.protocol.Quota`.

    `words` belong to the lease `lease_id`; None without a lease. `ceiling` bounds the lease; -1
    means that the store must be asked, because it never was or its answer did not arrive.
    `transaction_count` counts the transactions so far: a holder that charges once needs no lease.
    `charge_in_store` and `reserve_in_store` serve what the words cannot; `charges_in_slots` is
    False if words are less durable than the store.
    """

    __slots__ = (
        "__weakref__",
        "ceiling",
        "charge_in_store",
        "charges_in_slots",
        "count",
        "granted",
        "is_plain_total",
        "key",
        "keys_when_full",
        "lease_id",
        "reserve_in_store",
        "reserved",
        "settled_count",
        "spec",
        "transaction_count",
        "usage",
        "used",
        "words",
    )

    def __init__(
        self,
        key: QuotaKey,
        spec: QuotaSpec,
        *,
        charges_in_slots: bool,
        charge_in_store: Callable[[LeasedQuota, int, int | None], None],
        reserve_in_store: Callable[[LeasedQuota, int], None],
    ) -> None:
        self.key = key
        self.spec = spec
        self.is_plain_total = spec.within is None and not spec.reserves
        self.charges_in_slots = charges_in_slots
        self.charge_in_store = charge_in_store
        self.reserve_in_store = reserve_in_store
        self.usage = BudgetUsage()
        self.granted = 0
        self.keys_when_full = 0
        self.transaction_count = 0
        self.drop_lease()

    @property
    def has_reservation(self) -> bool:
        return self.reserved > 0

    def drop_lease(self) -> None:
        """Forget the lease."""
        self.lease_id = 0
        self.words: SlotWords | None = None
        self.ceiling = -1
        self.used = self.reserved = self.count = self.settled_count = 0

    def adopt_lease(self, lease: QuotaLease, words: SlotWords) -> None:
        """Use this lease, as the store has just saved it."""
        self.lease_id = lease.id
        self.words = words
        self.used = words[USED] if self.spec.within is None else lease.settled_amount
        self.reserved = words[RESERVED]
        self.count = words[COUNT]
        self.settled_count = lease.settled_count

    def has_room(self, amount: int) -> bool:
        if self.ceiling < 0:
            return False
        return not amount or (
            self.used + self.reserved + amount <= self.ceiling and self._has_log_room(2)
        )

    def try_charge(self, amount: int, at: int | None) -> bool:
        if not amount or self.ceiling < 0:
            return self.ceiling >= 0
        if self.used + self.reserved + amount > self.ceiling or not self._has_log_room(2):
            return False
        words = self.words
        assert words is not None  # noqa: S101 - only a lease has room
        if self.is_plain_total:
            self.used += amount
            words[USED] = self.used
        else:
            at = self.usage.clamp_time(at or 0)
            self._write(words, amount, at, reserve=self.spec.reserves)
        if words[ID] == self.lease_id:
            return True
        # Another process fenced the lease, and may or may not have read this charge: undo it.
        self._write(words, -amount, at, reserve=self.spec.reserves)
        self.ceiling = -1
        return False

    def charge(self, amount: int, at: int | None) -> None:
        words = self.words
        if (
            words is None
            or not self.charges_in_slots
            or not self._has_log_room(1)
            or not self._is_countable(amount)
            or not self._undoes_own(words, amount, at)
        ):
            self.charge_in_store(self, amount, at)
        else:
            at = self.usage.clamp_time(at or 0) if amount > 0 else at
            self._write(words, amount, at, reserve=False)

    def reserve(self, amount: int) -> None:
        """Reserve an amount, even beyond the limit; ignore one too large to count."""
        if amount > 0 and not self._is_countable(amount):
            return
        if self.words is not None:
            self._write(self.words, max(amount, -self.reserved), None, reserve=True)
        elif amount > 0:
            self.reserve_in_store(self, amount)

    def _write(self, words: SlotWords, amount: int, at: int | None, *, reserve: bool) -> None:
        if reserve:
            self.reserved += amount
            words[RESERVED] = self.reserved
            return
        self.used += amount
        if self.spec.within is None:
            words[USED] = self.used
            return
        log_charge(words, self.count, at or 0, amount)
        self.count += 1

    def _has_log_room(self, charges: int) -> bool:
        """Return whether the log takes so many more charges. A charge may need one to undo it."""
        return (
            self.is_plain_total
            or self.spec.within is None
            or self.count + charges - self.settled_count <= LOG_CAPACITY
        )

    def _undoes_own(self, words: SlotWords, amount: int, at: int | None) -> bool:
        """Return whether the log may take this: of refunds only those of its own charges."""
        if amount >= 0 or self.spec.within is None:
            return True
        return has_logged(words, range(self.settled_count, self.count), at or 0, -amount)

    def _is_countable(self, amount: int) -> bool:
        total = self.used + self.reserved + amount
        return -MAX_AMOUNT <= amount <= MAX_AMOUNT and total <= MAX_AMOUNT
