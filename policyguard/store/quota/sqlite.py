"""Purses in a SQLite file; the words of their shares stand in a file beside it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.errors import DECODE_ERRORS, damaged_error
from policyguard.store.quota.lease import QuotaLease, SlotWords
from policyguard.store.quota.mmap_slots import MmapSlots
from policyguard.store.session_locks import FileLock, LockFile
from policyguard.store.sqlite.database import Database

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(
    tuple[int, int, int | None, int | None, list[tuple[int, int]] | None]  # of any size, in JSON
)


class SqliteQuotaBackend:
    """See `policyguard.store.quota.backend.Ledger`. `lasting`: transactions survive a power loss."""

    visibility_delay = (
        0.001  # processors show each other what they wrote within about a microsecond
    )

    def __init__(self, database: Database, locks: LockFile, *, is_durable: bool) -> None:
        self._database = database
        self._locks = locks
        self._slots = MmapSlots(database.path.with_name(f"{database.path.name}.purses"))
        self._holder: tuple[int, FileLock] | None = None
        self.is_durable = is_durable
        self.boot_id = _read_boot_id()

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._database.transaction(write=write)

    def get_usage(self, budget: str, key: str) -> BudgetUsage | None:
        """A purse's account."""
        rows = self._database.execute(
            "SELECT account FROM purses WHERE budget = ? AND key = ?", (budget, key)
        )
        return self._decode_usage(rows[0][0]) if rows else None

    def put_usage(self, budget: str, key: str, usage: BudgetUsage, until: int | None) -> None:
        """Set a purse's account."""
        self._database.execute(
            "INSERT INTO purses (budget, key, account, until) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET account = excluded.account, until = excluded.until",
            (budget, key, _encode_usage(usage), until),
        )

    def count_keys(self, budget: str) -> int:
        """How many purses a budget has."""
        return self._database.query_int("SELECT count(*) FROM purses WHERE budget = ?", (budget,))

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more."""
        self._database.execute(
            "DELETE FROM purses WHERE budget = ? AND until <= ? AND NOT EXISTS (SELECT 1 "
            "FROM shares WHERE shares.budget = purses.budget AND shares.key = purses.key)",
            (budget, at),
        )

    def list_leases(self, budget: str, key: str) -> list[QuotaLease]:
        """The shares of a purse."""
        rows = self._database.execute(
            "SELECT id, holder, slot, ceiling, moved, count, boot FROM shares "
            "WHERE budget = ? AND key = ?",
            (budget, key),
        )
        return [QuotaLease(*row) for row in rows]

    def put_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Set a share."""
        self._database.execute(
            "INSERT INTO shares (id, budget, key, holder, slot, ceiling, moved, count, boot) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "ceiling = excluded.ceiling, moved = excluded.moved, count = excluded.count",
            (
                lease.id,
                budget,
                key,
                lease.holder,
                lease.slot,
                lease.ceiling,
                lease.settled_amount,
                lease.settled_count,
                lease.boot_id,
            ),
        )

    def delete_lease(self, budget: str, key: str, lease: QuotaLease) -> None:
        """Forget a share."""
        self._database.execute("DELETE FROM shares WHERE id = ?", (lease.id,))

    def holder_id(self) -> int:
        """The number of this process."""
        if self._holder is None:
            # Given up with the store: what nobody has any more holds nothing, though its process
            # lives on. As that ends it is held until it has died: threads may still draw.
            number = int.from_bytes(os.urandom(8)) >> 3
            self._holder = number, self._locks.acquire_process_lock(number)
        return self._holder[0]

    def release_holder(self) -> None:
        """The process holds nothing any more."""
        if self._holder is not None:
            self._holder[1].release()
            self._holder = None
        self._slots.close()

    def is_alive(self, holder: int) -> bool:
        """Whether that process is alive."""
        return self._locks.is_process_alive(holder)

    def find_free_slot(self, excluded: Collection[int]) -> int:
        """The first slot that no share has, and that is none of those."""
        run = self._database.execute
        gaps = run(
            "SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM shares WHERE slot = 0) UNION ALL "
            "SELECT * FROM (SELECT slot + 1 FROM shares AS one WHERE NOT EXISTS "
            "(SELECT 1 FROM shares WHERE slot = one.slot + 1) ORDER BY slot) LIMIT ?",
            (len(excluded) + 1,),
        )
        for (slot,) in gaps:
            while slot in excluded:
                slot += 1
            if not run("SELECT 1 FROM shares WHERE slot = ?", (slot,)):
                return int(slot)
        raise AssertionError("behind the last share there is always a slot")

    def _decode_usage(self, written: bytes) -> BudgetUsage:
        account = BudgetUsage()
        try:
            values = _decoder.decode(written)
            account.used, account.granted, account.started_at, account.latest_at, draws = values
        except DECODE_ERRORS as error:
            raise damaged_error(self._database.path, "a shared budget", error) from None
        if draws is not None:
            account.charges = deque(draws)
        return account

    def slot_words(self, slot: int, *, create: bool = False) -> SlotWords | None:
        """The words of a slot."""
        return self._slots.create(slot) if create else self._slots.find(slot)

    def after_fork(self) -> None:
        """The process is a forked child."""
        self._holder = None


def _encode_usage(usage: BudgetUsage) -> bytes:
    draws = list(usage.charges) if usage.charges is not None else None
    return _encode((usage.used, usage.granted, usage.started_at, usage.latest_at, draws))


def _read_boot_id() -> str:
    """Tells one start of the machine from another; empty where the system does not say (macOS)."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
