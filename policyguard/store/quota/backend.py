"""Where purses and shares are written down: what memory and SQLite each do in their own way."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.quota.lease import QuotaLease, SlotWords


class QuotaBackend(Protocol):
    """The rows behind `policyguard.store.quota.quotas`, in whose docstrings the words are explained.

    `pause` is how long (seconds) until a word that was written is read by all. `boot` tells one
    start of the machine from another, where that can be told. `lasting`: the rows survive a power
    loss, which words do not.
    """

    visibility_delay: float
    boot_id: str
    is_durable: bool

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        ...

    def get_usage(self, budget: str, key: str) -> BudgetUsage | None:
        """A purse's account, to be changed by whoever asks."""
        ...

    def put_usage(self, budget: str, key: str, usage: BudgetUsage, until: int | None) -> None:
        """Set a purse's account; from `until` on nothing in it counts any more."""
        ...

    def count_keys(self, budget: str) -> int:
        """How many purses a budget has."""
        ...

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more, and that nobody has a share of."""
        ...

    def list_leases(self, budget: str, key: str) -> list[QuotaLease]:
        """The shares of a purse."""
        ...

    def put_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Set a share."""
        ...

    def delete_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Forget a share."""
        ...

    def holder_id(self) -> int:
        """The number of this process: it is alive as long as the process is, or until `leave`."""
        ...

    def release_holder(self) -> None:
        """The process holds nothing any more."""
        ...

    def is_alive(self, holder: int) -> bool:
        """Whether that process is alive. To be asked within writing transactions only."""
        ...

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """A slot that no share has, and that is none of those."""
        ...

    def slot_words(self, slot: int, *, create: bool = False) -> SlotWords | None:
        """The words of a slot, made where they are to be; None where there are none."""
        ...

    def after_fork(self) -> None:
        """The process is a forked child: what its parent holds is not its own."""
        ...
