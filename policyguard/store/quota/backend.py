"""The storage of quotas and leases, implemented for memory and for SQLite."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.quota.lease import QuotaLease, SlotWords
from policyguard.store.quota.protocol import QuotaKey


class QuotaBackend(Protocol):
    """The rows behind `policyguard.store.quota.quotas`.

    After `visibility_delay` seconds every processor sees a written word. `boot_id` identifies the
    machine's boot, if known. With `is_durable`, rows survive power loss; words never do.
    """

    visibility_delay: float
    boot_id: str
    is_durable: bool

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """Make everything inside one step."""

    def get_usage(self, key: QuotaKey) -> BudgetUsage | None:
        """Return a copy of a quota's usage."""

    def put_usage(self, key: QuotaKey, usage: BudgetUsage, until: int | None) -> None:
        """Set a quota's usage; from `until` on nothing in it counts."""

    def delete_usage(self, key: QuotaKey) -> None:
        """Delete a quota that has no leases."""

    def keys(self) -> list[tuple[str, str]]:
        """Return budget and key of each quota, in this order."""

    def count_keys(self, budget: str) -> int:
        """Return a budget's number of quotas."""

    def prune(self, budget: str, at: int) -> None:
        """Delete quotas without leases in which nothing counts any more."""

    def list_leases(self, key: QuotaKey) -> list[QuotaLease]:
        """Return copies of a quota's leases."""

    def put_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        """Save a lease."""

    def delete_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        """Delete a lease."""

    def holder_id(self) -> int:
        """Return this process's number, alive until the process dies or `release_holder`."""

    def release_holder(self) -> None:
        """Declare that this process holds no lease."""

    def is_alive(self, holder: int) -> bool:
        """Return whether that process is alive. Call it in write transactions only."""

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """Return a slot that no lease has and that is not `excluded`."""

    def find_words(self, slot: int) -> SlotWords | None:
        """Return a slot's words; None if they do not exist."""

    def create_words(self, slot: int) -> SlotWords:
        """Return the words of a slot that no lease has."""

    def after_fork(self) -> None:
        """Give up what belongs to the parent process."""
