"""A guard's handle on a budget that hosts share: it draws from its lease in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.errors import StoreError
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return seconds by a clock that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class LeaseSource(Protocol):
    """Where handles get their leases, and charge what none covers."""

    def charge(self, quota: PostgresQuota, amount: int, at: int | None) -> None:
        """Count in the database what no lease covers."""

    def renew(self, quotas: Iterable[PostgresQuota]) -> None:
        """Lease what is reserved for another term."""


class PostgresQuota:
    """See `policyguard.store.quota.protocol.Quota`.

    `lease` is the id of its lease, 0 for none; it keeps at most `spare` of it without a use.
    """

    def __init__(self, quotas: LeaseSource, key: QuotaKey, spec: QuotaSpec) -> None:
        self._quotas, self.key, self.spec = quotas, key, spec
        self.usage = BudgetUsage()
        self.granted = 0
        self.keys_when_full = 0
        self.reserved = 0
        self.lease, self.leased, self.spare, self.until = 0, 0, 0, 0.0
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
        return taken <= self.leased and elapsed() < self.until

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
            if amount < 0 and (-amount, at) in self.drawn and elapsed() < self.until:
                self.drawn.remove((-amount, at))
                self.drawn_amount += amount
                return
        self._quotas.charge(self, amount, at)

    def reserve(self, amount: int) -> None:
        with self._lock:
            self.reserved = max(0, self.reserved + amount)
            unused = self.leased - self.drawn_amount - self.reserved
        if amount > 0 > unused:
            self._quotas.renew([self])
        elif amount < 0 and unused > self.spare:
            with suppress(StoreError):  # it is returned before the lease runs out
                self._quotas.renew([self])

    def _draw(self, amount: int, at: int | None) -> None:
        self.drawn_amount += amount
        self.drawn.append((amount, None if at is None else self.usage.clamp_time(at)))
