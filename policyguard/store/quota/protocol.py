"""The contract of a store's quotas: budgets that any number of processes share.

Its methods are as those of a store (`policyguard.store.protocol`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage


class QuotaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a budget's quotas. Amounts are integers in units that the budget defines.

    `limit` caps the total, or the last `within` nanoseconds. With `reserves`, a charge is a
    reservation until the real usage is known, and is freed when its holder dies; with
    `counts_slots`, reservations never become usage. A window keeps at most `max_charges` separate
    charges; a budget has at most `max_keys` quotas.
    """

    limit: int
    within: int | None = None
    reserves: bool = False
    counts_slots: bool = False
    max_charges: int = 1024
    max_keys: int = 10_000


class QuotaKey(msgspec.Struct, frozen=True):
    """Identifies a quota: its budget, its key, and its scope (the first part of the key)."""

    budget: str
    key: str
    scope: str


class Quota(Protocol):
    """One holder's handle on a budget counter that any number of processes share.

    The holder charges its lease without coordination; other processes can reclaim what it leaves
    unused, even while it sleeps, is stopped or has died. A charge counts from then on, whatever
    happens to the process. Use it from one thread at a time, outside transactions.
    """

    @property
    def usage(self) -> BudgetUsage:
        """The usage by all holders, as of the last `try_charge_all` or `refresh`."""

    @property
    def granted(self) -> int:
        """The amount granted to the whole scope, if this is the quota of one key in it."""

    @property
    def keys_when_full(self) -> int:
        """The budget's number of quotas if it had no room for this one; else 0."""

    @property
    def has_reservation(self) -> bool:
        """Whether anything is reserved."""

    def has_room(self, amount: int) -> bool:
        """Return whether the lease covers `amount`, so that `try_charge` will most likely work."""

    def try_charge(self, amount: int, at: int | None) -> bool:
        """Charge the lease. If it returns False, call `QuotaStore.try_charge_all`."""

    def charge(self, amount: int, at: int | None) -> None:
        """Count usage, even beyond the limit. A negative amount refunds a charge made at `at`."""

    def reserve(self, amount: int) -> None:
        """Reserve an amount, even beyond the limit. A negative amount ends a reservation."""


class QuotaStore(Protocol):
    """The exact usage of budgets whose scopes processes share."""

    def open(self, key: QuotaKey, spec: QuotaSpec) -> Quota:
        """Return a handle on a quota. Writes nothing until the first charge."""

    def try_charge_all(self, charges: Sequence[tuple[Quota, int]], at: int | None) -> bool:
        """Charge all these amounts or none, reclaiming unused leases of others.

        May extend the holder's leases: the less remains, the smaller they are. The first charge
        starts the quota's time. Each `usage` then shows the state before the charge.
        """

    def refresh(self, quotas: Sequence[Quota], at: int | None, *, settle: bool = False) -> None:
        """Update each `usage`; with `settle`, also reclaim the leases of dead holders."""

    def grant(self, key: QuotaKey, amount: int) -> None:
        """Raise a quota's limit; every limit in the scope if the key is the scope's."""

    def keys(self) -> Sequence[QuotaKey]:
        """Return the quotas with usage or grants, by budget and key."""

    def reset(self, key: QuotaKey, spec: QuotaSpec) -> BudgetUsage:
        """Forget a quota's usage and grants, in every process, and return what they were.

        What is reserved stays so, and is counted when it is used.
        """

    def close(self, quotas: Sequence[Quota]) -> None:
        """Return the leases of these quotas, which may be used again."""
