"""Quotas and leases in memory."""

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
from policyguard.store.quota.protocol import QuotaKey


class MemoryQuotaBackend:
    """See `policyguard.store.quota.backend.QuotaBackend`. All holders are of this process."""

    visibility_delay = 0.0  # threads run in turn, and each sees what the previous one wrote
    boot_id = ""
    is_durable = False

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        self._usages: Table[QuotaKey, tuple[BudgetUsage, int | None]] = Table(undo_log, sys.maxsize)
        self._leases: Table[QuotaKey, tuple[QuotaLease, ...]] = Table(undo_log, sys.maxsize)
        self._words: dict[int, SlotWords] = {}
        self._last_slot = 0

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        return self._undo_log()

    def get_usage(self, key: QuotaKey) -> BudgetUsage | None:
        row = self._usages.rows.get(key)
        return row[0].copy() if row is not None else None

    def put_usage(self, key: QuotaKey, usage: BudgetUsage, until: int | None) -> None:
        self._usages.put(key, (usage.copy(), until))

    def delete_usage(self, key: QuotaKey) -> None:
        self._usages.delete(key)

    def keys(self) -> list[tuple[str, str]]:
        return sorted((key.budget, key.key) for key in self._usages.rows)

    def count_keys(self, budget: str) -> int:
        return sum(1 for key in self._usages.rows if key.budget == budget)

    def prune(self, budget: str, at: int) -> None:
        for key, (_, until) in list(self._usages.rows.items()):
            expired = until is not None and until <= at
            if expired and key.budget == budget and not self._leases.rows.get(key):
                self._usages.delete(key)

    def list_leases(self, key: QuotaKey) -> list[QuotaLease]:
        return [msgspec.structs.replace(lease) for lease in self._leases.rows.get(key, ())]

    def put_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        others = (other for other in self.list_leases(key) if other.id != lease.id)
        self._leases.put(key, (*others, msgspec.structs.replace(lease)))

    def delete_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        others = tuple(other for other in self.list_leases(key) if other.id != lease.id)
        if others:
            self._leases.put(key, others)
        else:
            self._leases.delete(key)
        self._words.pop(lease.slot, None)

    def holder_id(self) -> int:
        return os.getpid()

    def release_holder(self) -> None:
        """Do nothing: no other process asks."""

    def is_alive(self, holder: int) -> bool:
        """Return whether this is that process: a forked child reclaims its parent's leases."""
        return holder == os.getpid()

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """Return a new slot."""
        self._last_slot += 1
        return self._last_slot

    def find_words(self, slot: int) -> SlotWords | None:
        return self._words.get(slot)

    def create_words(self, slot: int) -> SlotWords:
        words = self._words[slot] = memoryview(array("q", [0] * WORDS_PER_SLOT))
        return words

    def after_fork(self) -> None:
        """Do nothing: a forked child has its own copy."""
