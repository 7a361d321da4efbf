"""Purses in memory: their rows, and the words of their shares."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Collection
from contextlib import AbstractContextManager

import msgspec

from policyguard.evaluator.account import Account
from policyguard.store.share import WORDS, Share, Words
from policyguard.store.table import Step, Table

_Place = tuple[str, str]


class MemoryLedger:
    """See `policyguard.store.ledger.Ledger`. All holders are of this process."""

    pause = 0.0  # one thread runs at a time, and sees what those before it wrote
    boot = ""
    lasting = False

    def __init__(self, step: Step) -> None:
        self._step = step
        self._accounts: Table[_Place, tuple[Account, int | None]] = Table(step, sys.maxsize)
        self._shares: Table[_Place, tuple[Share, ...]] = Table(step, sys.maxsize)
        self._words: dict[int, Words] = {}
        self._slots = 0

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._step()

    def account(self, budget: str, key: str) -> Account | None:
        """A purse's account."""
        found = self._accounts.rows.get((budget, key))
        return found[0].copy() if found is not None else None

    def put_account(self, budget: str, key: str, account: Account, until: int | None) -> None:
        """Set a purse's account."""
        self._accounts.put((budget, key), (account.copy(), until))

    def size(self, budget: str) -> int:
        """How many purses a budget has."""
        return sum(1 for known, _ in self._accounts.rows if known == budget)

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more."""
        for place, (_, until) in list(self._accounts.rows.items()):
            over = until is not None and until <= at
            if over and place[0] == budget and not self._shares.rows.get(place):
                self._accounts.remove(place)

    def shares(self, budget: str, key: str) -> list[Share]:
        """The shares of a purse."""
        kept = self._shares.rows.get((budget, key), ())
        return [msgspec.structs.replace(share) for share in kept]

    def put_share(self, budget: str, key: str, share: Share) -> None:
        """Set a share."""
        others = (one for one in self.shares(budget, key) if one.id != share.id)
        self._shares.put((budget, key), (*others, msgspec.structs.replace(share)))

    def drop_share(self, budget: str, key: str, share: Share) -> None:
        """Forget a share."""
        others = tuple(one for one in self.shares(budget, key) if one.id != share.id)
        if others:
            self._shares.put((budget, key), others)
        else:
            self._shares.remove((budget, key))
        self._words.pop(share.slot, None)

    def holder(self) -> int:
        """The number of this process."""
        return os.getpid()

    def leave(self) -> None:
        """Nobody is waiting for it."""

    def alive(self, holder: int) -> bool:
        """There is no other process: after a fork, what the parent had is given back."""
        return holder == os.getpid()

    def free_slot(self, but: Collection[int]) -> int:
        """A slot that no share has."""
        self._slots += 1
        return self._slots

    def words(self, slot: int, *, make: bool = False) -> Words | None:
        """The words of a slot."""
        if make:
            self._words[slot] = memoryview(array("q", [0] * WORDS))
        return self._words.get(slot)

    def forked(self) -> None:
        """A forked child goes on with a copy of its own."""
