"""Where purses and shares are written down: what memory and SQLite each do in their own way."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from policyguard.evaluator.account import Account
from policyguard.store.share import Share, Words


class Ledger(Protocol):
    """The rows behind `policyguard.store.purses`, in whose docstrings the words are explained.

    `pause` is how long (seconds) until a word that was written is read by all. `boot` tells one
    start of the machine from another, where that can be told. `lasting`: the rows survive a power
    loss, which words do not.
    """

    pause: float
    boot: str
    lasting: bool

    def transaction(self, *, write: bool = True) -> AbstractContextManager[None]:
        """All inside is one step."""
        ...

    def account(self, budget: str, key: str) -> Account | None:
        """A purse's account, to be changed by whoever asks."""
        ...

    def put_account(self, budget: str, key: str, account: Account, until: int | None) -> None:
        """Set a purse's account; from `until` on nothing in it counts any more."""
        ...

    def size(self, budget: str) -> int:
        """How many purses a budget has."""
        ...

    def prune(self, budget: str, at: int) -> None:
        """Forget purses in which nothing counts any more, and that nobody has a share of."""
        ...

    def shares(self, budget: str, key: str) -> list[Share]:
        """The shares of a purse."""
        ...

    def put_share(self, budget: str, key: str, share: Share) -> None:
        """Set a share."""
        ...

    def drop_share(self, budget: str, key: str, share: Share) -> None:
        """Forget a share."""
        ...

    def holder(self) -> int:
        """The number of this process: it is alive as long as the process is, or until `leave`."""
        ...

    def leave(self) -> None:
        """The process holds nothing any more."""
        ...

    def alive(self, holder: int) -> bool:
        """Whether that process is alive. To be asked within writing transactions only."""
        ...

    def free_slot(self, but: Collection[int]) -> int:
        """A slot that no share has, and that is none of those."""
        ...

    def words(self, slot: int, *, make: bool = False) -> Words | None:
        """The words of a slot, made where they are to be; None where there are none."""
        ...

    def forked(self) -> None:
        """The process is a forked child: what its parent holds is not its own."""
        ...
