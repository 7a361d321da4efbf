"""Purses: what scopes that processes share have used of their budgets, exactly.

A purse is an account and the *shares* that holders have on lease from it. What may still be drawn
is the limit, less what the account has, less what the shares reach to. Who asks and finds too
little takes back what others have and do not use: first from the dead, then from the living (see
`policyguard.store.share` for how). A new lease is a part of what is left, so leases shrink towards
the limit, and the last units are drawn one by one.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

from policyguard.evaluator.account import Account
from policyguard.store.count import Count
from policyguard.store.ledger import Ledger
from policyguard.store.protocol import Purse, PurseName, Terms
from policyguard.store.purse import SharedPurse
from policyguard.store.share import HELD


class SharedPurses:
    """See `policyguard.store.protocol.Purses`; the same over whatever keeps the rows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: weakref.WeakSet[SharedPurse] = weakref.WeakSet()
        self.quick = not ledger.lasting
        """Whether the words of a share last as long as the rows do."""
        _all.add(self)

    def open(self, name: PurseName, terms: Terms) -> SharedPurse:
        """A hand in a purse."""
        purse = SharedPurse(name, terms, self)
        self._open.add(purse)
        return purse

    def ask(self, demands: Sequence[tuple[Purse, int]], at: int | None) -> bool:
        """Draw these amounts, all or none."""
        asked = [(_ours(purse), amount) for purse, amount in demands]
        for purse, _ in asked:
            purse.ceiling = -1  # until the answer is written down
        try:
            with self._ledger.transaction():
                freed: set[int] = set()
                counts = [Count(self._ledger, purse, at, freed) for purse, _ in asked]
                paid = all(
                    count.finds(amount) for count, (_, amount) in zip(counts, asked, strict=True)
                )
                for count, (_, amount) in zip(counts, asked, strict=True):
                    if paid:
                        count.draw(amount)
                    count.save()
        except BaseException:
            for purse, _ in asked:
                if purse.words is not None:
                    purse.words[HELD] = purse.held
            raise
        for count in counts:
            count.answer()
        return paid

    def look(self, purses: Sequence[Purse], at: int | None, *, settle: bool = False) -> None:
        """Bring `account` up to date."""
        vague = []
        with self._ledger.transaction(write=False):
            for purse in purses:
                count = Count(self._ledger, _ours(purse), at, set())
                if settle and count.vague():
                    vague.append(_ours(purse))
                else:
                    count.tell()
        for one in vague:
            with self._ledger.transaction():
                count = Count(self._ledger, one, at, set())
                count.settle()
                count.save()
            count.tell()

    def grant(self, name: PurseName, amount: int) -> None:
        """Raise the limit of a purse or of a whole scope."""
        with self._ledger.transaction():
            account = self._ledger.account(name.budget, name.key) or Account()
            account.granted += amount
            self._ledger.put_account(name.budget, name.key, account, None)

    def close(self, purses: Sequence[Purse] | None = None) -> None:
        """Give back what is on lease; of all purses, where none are named."""
        ours = [_ours(purse) for purse in (self._open if purses is None else purses)]
        leased = [purse for purse in ours if purse.words is not None]
        if leased:
            for purse in leased:
                purse.ceiling = -1
            with self._ledger.transaction():
                for purse in leased:
                    Count(self._ledger, purse, None, set()).leave()
            for purse in leased:
                if not purse.holding:
                    purse.drop()
        if purses is None and not any(purse.words is not None for purse in ours):
            self._ledger.leave()

    def spend(self, purse: SharedPurse, amount: int, at: int | None) -> None:
        """Count at once what no share can."""
        with self._ledger.transaction():
            count = Count(self._ledger, purse, at, set())
            count.use(amount)
            if purse.asked > 1:
                count.join()
            count.save()
        count.answer(told=False)

    def hold(self, purse: SharedPurse, amount: int) -> None:
        """Hold something without a share so far."""
        with self._ledger.transaction():
            count = Count(self._ledger, purse, None, set())
            count.join()[HELD] += amount
            count.save()
        count.answer(told=False)

    def forked(self) -> None:
        """The process is a forked child: the leases are its parent's."""
        for purse in self._open:
            purse.drop()
        self._ledger.forked()


def _ours(purse: Purse) -> SharedPurse:
    if not isinstance(purse, SharedPurse):
        raise TypeError("a purse of another store")
    return purse


_all: weakref.WeakSet[SharedPurses] = weakref.WeakSet()


def _after_fork() -> None:
    for purses in list(_all):
        purses.forked()


os.register_at_fork(after_in_child=_after_fork)
