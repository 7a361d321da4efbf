"""Quotas and leases in SQLite, with the words of leases in a file beside the database."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import AbstractContextManager

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.model.text import escape_surrogates
from policyguard.store.boot import read_boot_id
from policyguard.store.errors import RESTORE_HINT, StoreError
from policyguard.store.quota.lease import QuotaLease, SlotWords
from policyguard.store.quota.mmap_slots import MmapSlots
from policyguard.store.quota.protocol import QuotaKey
from policyguard.store.quota.stored_usage import decode_usage, encode_usage
from policyguard.store.session_locks import FileLock, LockFile
from policyguard.store.sqlite.database import Database
from policyguard.store.sqlite.row_digest import hash_row


class SqliteQuotaBackend:
    """See `policyguard.store.quota.backend.QuotaBackend`."""

    visibility_delay = 0.001  # a word reaches the other processors within about a microsecond

    def __init__(
        self, database: Database, locks: LockFile, *, is_durable: bool, read_only: bool = False
    ) -> None:
        self._database = database
        self._locks = locks
        words = database.path.with_name(f"{database.path.name}.purses")
        self._slots = MmapSlots(words, read_only=read_only)
        self._holder: tuple[int, FileLock] | None = None
        self.is_durable = is_durable
        self.boot_id = read_boot_id()

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        return self._database.transaction(write=write)

    def get_usage(self, key: QuotaKey) -> BudgetUsage | None:
        rows = self._database.execute(
            "SELECT budget, key, account, until, digest FROM purses WHERE budget = ? AND key = ?",
            (key.budget, key.key),
        )
        if not rows:
            return None
        *row, digest = rows[0]
        if hash_row(*row) != digest:
            raise StoreError(
                self._database.path,
                f"the usage of budget `{key.budget}` in it was changed by another program",
                RESTORE_HINT,
            )
        return decode_usage(self._database.path, row[2])

    def put_usage(self, key: QuotaKey, usage: BudgetUsage, until: int | None) -> None:
        names = escape_surrogates(key.budget), escape_surrogates(key.key)  # as they are stored
        row = (*names, encode_usage(usage), until)
        self._database.execute(
            "INSERT INTO purses (budget, key, account, until, digest) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET account = excluded.account, until = excluded.until, "
            "digest = excluded.digest",
            (*row, hash_row(*row)),
        )

    def delete_usage(self, key: QuotaKey) -> None:
        self._database.execute(
            "DELETE FROM purses WHERE budget = ? AND key = ?", (key.budget, key.key)
        )

    def keys(self) -> list[tuple[str, str]]:
        rows = self._database.execute("SELECT budget, key FROM purses ORDER BY budget, key")
        return [(budget, key) for budget, key in rows]

    def count_keys(self, budget: str) -> int:
        return self._database.query_int("SELECT count(*) FROM purses WHERE budget = ?", (budget,))

    def prune(self, budget: str, at: int) -> None:
        self._database.execute(
            "DELETE FROM purses WHERE budget = ? AND until <= ? AND NOT EXISTS (SELECT 1 "
            "FROM shares WHERE shares.budget = purses.budget AND shares.key = purses.key)",
            (budget, at),
        )

    def list_leases(self, key: QuotaKey) -> list[QuotaLease]:
        rows = self._database.execute(
            "SELECT id, holder, slot, ceiling, moved, count, boot FROM shares "
            "WHERE budget = ? AND key = ?",
            (key.budget, key.key),
        )
        return [QuotaLease(*row) for row in rows]

    def put_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        self._database.execute(
            "INSERT INTO shares (budget, key, id, holder, slot, ceiling, moved, count, boot) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "ceiling = excluded.ceiling, moved = excluded.moved, count = excluded.count",
            (key.budget, key.key, *msgspec.structs.astuple(lease)),
        )

    def delete_lease(self, key: QuotaKey, lease: QuotaLease) -> None:
        self._database.execute("DELETE FROM shares WHERE id = ?", (lease.id,))

    def holder_id(self) -> int:
        if self._holder is None:
            # Released with the store, even while the process lives on. At exit it stays held until
            # the process is dead: threads may still charge.
            number = int.from_bytes(os.urandom(8)) >> 3
            self._holder = number, self._locks.acquire_process_lock(number)
        return self._holder[0]

    def release_holder(self) -> None:
        if self._holder is not None:
            self._holder[1].release()
            self._holder = None
        self._slots.close()

    def is_alive(self, holder: int) -> bool:
        return self._locks.is_process_alive(holder)

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """Return the first slot that no lease has and that is not `excluded`."""
        execute = self._database.execute
        gaps = execute(
            "SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM shares WHERE slot = 0) UNION ALL "
            "SELECT * FROM (SELECT slot + 1 FROM shares AS one WHERE NOT EXISTS "
            "(SELECT 1 FROM shares WHERE slot = one.slot + 1) ORDER BY slot) LIMIT ?",
            (len(excluded) + 1,),
        )
        for (slot,) in gaps:
            while slot in excluded:
                slot += 1
            if not execute("SELECT 1 FROM shares WHERE slot = ?", (slot,)):
                return int(slot)
        raise AssertionError("there is always a slot after the last lease")

    def find_words(self, slot: int) -> SlotWords | None:
        return self._slots.find(slot)

    def create_words(self, slot: int) -> SlotWords:
        return self._slots.create(slot)

    def after_fork(self) -> None:
        self._holder = None
