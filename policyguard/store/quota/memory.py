"""Purses in memory: their rows, and the words of their shares."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Collection
from contextlib import AbstractContextManager

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.memory.table import Table, UndoLog
from policyguard.store.quota.lease import WORDS_PER_SLOT, QuotaLease, SlotWords

_QuotaId = tuple[str, str]


class MemoryQuotaBackend:
    """See `policyguard.store.quota.backend.Ledger`. All holders are of this process."""

    visibility_delay = 0.0  # one thread runs at a time, and sees what those before it wrote
    boot_id = ""
    is_durable = False

    def __init__(self, step: UndoLog) -> None:
        self._undo_log = step
        self._usages: Table[_QuotaId, tuple[BudgetUsage, int | None]] = Table(step, sys.maxsize)
        self._leases: Table[_QuotaId, tuple[QuotaLease, ...]] = Table(step, sys.maxsize)
        self._words: dict[int, SlotWords] = {}
        self._last_slot = 0

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._undo_log()

    def get_usage(self, budget: str, key: str) -> BudgetUsage | None:
        """A purse's account."""
        found = self._usages.rows.get((budget, key))
        return found[0].copy() if found is not None else None

    def put_usage(self, budget: str, key: str, usage: BudgetUsage, until: int | None) -> None:
        """Set a purse's account."""
        self._usages.put((budget, key), (usage.copy(), until))

    def count_keys(self, budget: str) -> int:
        """How many purses a budget has."""
        return sum(1 for known, _ in self._usages.rows if known == budget)

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more."""
        for place, (_, until) in list(self._usages.rows.items()):
            over = until is not None and until <= at
            if over and place[0] == budget and not self._leases.rows.get(place):
                self._usages.delete(place)

    def list_leases(self, budget: str, key: str) -> list[QuotaLease]:
        """The shares of a purse."""
        kept = self._leases.rows.get((budget, key), ())
        return [msgspec.structs.replace(share) for share in kept]

    def put_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Set a share."""
        others = (one for one in self.list_leases(budget, key) if one.id != lease.id)
        self._leases.put((budget, key), (*others, msgspec.structs.replace(lease)))

    def delete_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Forget a share."""
        others = tuple(one for one in self.list_leases(budget, key) if one.id != lease.id)
        if others:
            self._leases.put((budget, key), others)
        else:
            self._leases.delete((budget, key))
        self._words.pop(lease.slot, None)

    def holder_id(self) -> int:
        """The number of this process."""
        return os.getpid()

    def release_holder(self) -> None:
        """Nobody is waiting for it."""

    def is_alive(self, holder: int) -> bool:
        """There is no other process: after a fork, what the parent had is given back."""
        return holder == os.getpid()

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """A slot that no share has."""
        self._last_slot += 1
        return self._last_slot

    def slot_words(self, slot: int, *, create: bool = False) -> SlotWords | None:
        """The words of a slot."""
        if create:
            self._words[slot] = memoryview(array("q", [0] * WORDS_PER_SLOT))
        return self._words.get(slot)

    def after_fork(self) -> None:
        """A forked child goes on with a copy of its own."""
