"""One holder's hand in a purse: it draws on its lease without a lock, a clock or a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.protocol import QuotaKey, QuotaSpec
from policyguard.store.quota.lease import (
    COUNT,
    ID,
    LOG_CAPACITY,
    MAX_AMOUNT,
    RESERVED,
    USED,
    QuotaLease,
    SlotWords,
    log_charge,
)

if TYPE_CHECKING:
    from policyguard.store.quota.quotas import SharedQuotas


class LeasedQuota:
    """See `policyguard.store.protocol.Purse`.

    `share` is its lease and `words` where it writes, None as long as it has none. `ceiling` is how
    far it may go, -1 where it must ask: it has never asked, or the answer did not arrive. `asked`
    is how often it has taken a transaction: who draws but once needs no lease.
    """

    __slots__ = (
        "__weakref__",
        "ceiling",
        "count",
        "granted",
        "is_plain_total",
        "key",
        "keys_when_full",
        "lease_id",
        "quotas",
        "reserved",
        "settled_count",
        "spec",
        "transaction_count",
        "usage",
        "used",
        "words",
    )

    def __init__(self, key: QuotaKey, spec: QuotaSpec, quotas: SharedQuotas) -> None:
        self.key = key
        self.spec = spec
        self.is_plain_total = spec.within is None and not spec.reserves
        self.quotas = quotas
        self.usage = BudgetUsage()
        self.granted = 0
        self.keys_when_full = 0
        self.transaction_count = 0
        self.drop_lease()

    @property
    def has_reservation(self) -> bool:
        """Whether anything is held."""
        return self.reserved > 0

    def drop_lease(self) -> None:
        """Have no lease any more."""
        self.lease_id = 0
        self.words: SlotWords | None = None
        self.ceiling = -1
        self.used = self.reserved = self.count = self.settled_count = 0

    def adopt_lease(self, lease: QuotaLease, words: SlotWords) -> None:
        """Have this lease, as it was just written down."""
        self.lease_id = lease.id
        self.words = words
        self.used = words[USED] if self.spec.within is None else lease.settled_amount
        self.reserved = words[RESERVED]
        self.count = words[COUNT]
        self.settled_count = lease.settled_count

    def has_room(self, amount: int) -> bool:
        """Whether that much is on lease."""
        if self.ceiling < 0:
            return False
        return not amount or (
            self.used + self.reserved + amount <= self.ceiling and self._has_log_room(2)
        )

    def try_charge(self, amount: int, at: int | None) -> bool:
        """Draw from what is on lease."""
        if not amount or self.ceiling < 0:
            return self.ceiling >= 0
        if self.used + self.reserved + amount > self.ceiling or not self._has_log_room(2):
            return False
        words = self.words
        assert words is not None  # noqa: S101 - there is room only in a share
        if self.is_plain_total:
            self.used += amount
            words[USED] = self.used
        else:
            at = self._monotonic_time(at)
            self._write(words, amount, at, reserve=self.spec.reserves)
        if words[ID] == self.lease_id:
            return True
        # Somebody has taken back what was left, and may or may not have seen this draw.
        self._write(words, -amount, at, reserve=self.spec.reserves)
        self.ceiling = -1
        return False

    def charge(self, amount: int, at: int | None) -> None:
        """Count what was used, however much is left."""
        words = self.words
        if (
            words is None
            or not self.quotas.charges_in_slots
            or not self._has_log_room(1)
            or not self._is_countable(amount)
        ):
            self.quotas.charge(self, amount, at)
        else:
            self._write(
                words, amount, self._monotonic_time(at) if amount > 0 else at, reserve=False
            )

    def reserve(self, amount: int) -> None:
        """Hold something, however much is left; nothing that is more than can be counted."""
        if amount > 0 and not self._is_countable(amount):
            return
        if self.words is not None:
            self._write(self.words, max(amount, -self.reserved), None, reserve=True)
        elif amount > 0:
            self.quotas.reserve(self, amount)

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

    def _monotonic_time(self, at: int | None) -> int:
        """A clock that runs backwards makes no draw older than those before it."""
        return max(at or 0, self.usage.latest_at or 0)

    def _has_log_room(self, charges: int) -> bool:
        """Whether so many more draws can be remembered apart. A draw may have to be undone."""
        return (
            self.is_plain_total
            or self.spec.within is None
            or self.count + charges - self.settled_count <= LOG_CAPACITY
        )

    def _is_countable(self, amount: int) -> bool:
        return (
            -MAX_AMOUNT <= amount <= MAX_AMOUNT and self.used + self.reserved + amount <= MAX_AMOUNT
        )
