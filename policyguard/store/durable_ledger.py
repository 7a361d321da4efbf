"""Purses in a SQLite file; the words of their shares stand in a file beside it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from policyguard.evaluator.account import Account
from policyguard.store.errors import UNREADABLE, damaged
from policyguard.store.leases import Leases, SessionLease
from policyguard.store.share import Share, Words
from policyguard.store.slots import Slots
from policyguard.store.sqlite import Database

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(
    tuple[int, int, int | None, int | None, list[tuple[int, int]] | None]  # of any size, in JSON
)


class SqliteLedger:
    """See `policyguard.store.ledger.Ledger`. `lasting`: transactions survive a power loss."""

    pause = 0.001  # processors show each other what they wrote within about a microsecond

    def __init__(self, database: Database, leases: Leases, *, lasting: bool) -> None:
        self._database = database
        self._leases = leases
        self._slots = Slots(database.path.with_name(f"{database.path.name}.purses"))
        self._holder: tuple[int, SessionLease] | None = None
        self.lasting = lasting
        self.boot = _boot()

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._database.transaction(write=write)

    def account(self, budget: str, key: str) -> Account | None:
        """A purse's account."""
        rows = self._database.run(
            "SELECT account FROM purses WHERE budget = ? AND key = ?", (budget, key)
        )
        return self._account(rows[0][0]) if rows else None

    def put_account(self, budget: str, key: str, account: Account, until: int | None) -> None:
        """Set a purse's account."""
        self._database.run(
            "INSERT INTO purses (budget, key, account, until) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET account = excluded.account, until = excluded.until",
            (budget, key, _written(account), until),
        )

    def size(self, budget: str) -> int:
        """How many purses a budget has."""
        return self._database.number("SELECT count(*) FROM purses WHERE budget = ?", (budget,))

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more."""
        self._database.run(
            "DELETE FROM purses WHERE budget = ? AND until <= ? AND NOT EXISTS (SELECT 1 "
            "FROM shares WHERE shares.budget = purses.budget AND shares.key = purses.key)",
            (budget, at),
        )

    def shares(self, budget: str, key: str) -> list[Share]:
        """The shares of a purse."""
        rows = self._database.run(
            "SELECT id, holder, slot, ceiling, moved, count, boot FROM shares "
            "WHERE budget = ? AND key = ?",
            (budget, key),
        )
        return [Share(*row) for row in rows]

    def put_share(self, budget: str, key: str, share: Share) -> None:
        """Set a share."""
        self._database.run(
            "INSERT INTO shares (id, budget, key, holder, slot, ceiling, moved, count, boot) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "ceiling = excluded.ceiling, moved = excluded.moved, count = excluded.count",
            (
                share.id,
                budget,
                key,
                share.holder,
                share.slot,
                share.ceiling,
                share.moved,
                share.count,
                share.boot,
            ),
        )

    def drop_share(self, budget: str, key: str, share: Share) -> None:
        """Forget a share."""
        self._database.run("DELETE FROM shares WHERE id = ?", (share.id,))

    def holder(self) -> int:
        """The number of this process."""
        if self._holder is None:
            # Given up with the store: what nobody has any more holds nothing, though its process
            # lives on. As that ends it is held until it has died: threads may still draw.
            number = int.from_bytes(os.urandom(8)) >> 3
            self._holder = number, self._leases.hold(number)
        return self._holder[0]

    def leave(self) -> None:
        """The process holds nothing any more."""
        if self._holder is not None:
            self._holder[1].close()
            self._holder = None
        self._slots.close()

    def alive(self, holder: int) -> bool:
        """Whether that process is alive."""
        return self._leases.alive(holder)

    def free_slot(self, but: Collection[int]) -> int:
        """The first slot that no share has, and that is none of those."""
        run = self._database.run
        gaps = run(
            "SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM shares WHERE slot = 0) UNION ALL "
            "SELECT * FROM (SELECT slot + 1 FROM shares AS one WHERE NOT EXISTS "
            "(SELECT 1 FROM shares WHERE slot = one.slot + 1) ORDER BY slot) LIMIT ?",
            (len(but) + 1,),
        )
        for (slot,) in gaps:
            while slot in but:
                slot += 1
            if not run("SELECT 1 FROM shares WHERE slot = ?", (slot,)):
                return int(slot)
        raise AssertionError("behind the last share there is always a slot")

    def _account(self, written: bytes) -> Account:
        account = Account()
        try:
            values = _decoder.decode(written)
            account.used, account.granted, account.start, account.now, draws = values
        except UNREADABLE as error:
            raise damaged(self._database.path, "a shared budget", error) from None
        if draws is not None:
            account.draws = deque(draws)
        return account

    def words(self, slot: int, *, make: bool = False) -> Words | None:
        """The words of a slot."""
        return self._slots.make(slot) if make else self._slots.find(slot)

    def forked(self) -> None:
        """The process is a forked child."""
        self._holder = None


def _written(account: Account) -> bytes:
    draws = list(account.draws) if account.draws is not None else None
    return _encode((account.used, account.granted, account.start, account.now, draws))


def _boot() -> str:
    """Tells one start of the machine from another; empty where the system does not say (macOS)."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
