"""One holder's hand in a purse: it draws on its lease without a lock, a clock or a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.evaluator.account import Account
from policyguard.store.protocol import PurseName, Terms
from policyguard.store.share import COUNT, DRAWS, HELD, ID, MOST, USED, Share, Words, log

if TYPE_CHECKING:
    from policyguard.store.purses import SharedPurses


class SharedPurse:
    """See `policyguard.store.protocol.Purse`.

    `share` is its lease and `words` where it writes, None as long as it has none. `ceiling` is how
    far it may go, -1 where it must ask: it has never asked, or the answer did not arrive. `asked`
    is how often it has taken a transaction: who draws but once needs no lease.
    """

    __slots__ = (
        "__weakref__",
        "account",
        "asked",
        "ceiling",
        "count",
        "full",
        "granted",
        "held",
        "name",
        "plain",
        "purses",
        "settled",
        "share",
        "terms",
        "used",
        "words",
    )

    def __init__(self, name: PurseName, terms: Terms, purses: SharedPurses) -> None:
        self.name = name
        self.terms = terms
        self.plain = terms.within is None and not terms.held
        self.purses = purses
        self.account = Account()
        self.granted = 0
        self.full = 0
        self.asked = 0
        self.drop()

    @property
    def holding(self) -> bool:
        """Whether anything is held."""
        return self.held > 0

    def drop(self) -> None:
        """Have no lease any more."""
        self.share = 0
        self.words: Words | None = None
        self.ceiling = -1
        self.used = self.held = self.count = self.settled = 0

    def adopt(self, share: Share, words: Words) -> None:
        """Have this lease, as it was just written down."""
        self.share = share.id
        self.words = words
        self.used = words[USED] if self.terms.within is None else share.moved
        self.held = words[HELD]
        self.count = words[COUNT]
        self.settled = share.count

    def room(self, amount: int) -> bool:
        """Whether that much is on lease."""
        if self.ceiling < 0:
            return False
        return not amount or (self.used + self.held + amount <= self.ceiling and self._fits(2))

    def pay(self, amount: int, at: int | None) -> bool:
        """Draw from what is on lease."""
        if not amount or self.ceiling < 0:
            return self.ceiling >= 0
        if self.used + self.held + amount > self.ceiling or not self._fits(2):
            return False
        words = self.words
        assert words is not None  # noqa: S101 - there is room only in a share
        if self.plain:
            self.used += amount
            words[USED] = self.used
        else:
            at = self._honest(at)
            self._write(words, amount, at, held=self.terms.held)
        if words[ID] == self.share:
            return True
        # Somebody has taken back what was left, and may or may not have seen this draw.
        self._write(words, -amount, at, held=self.terms.held)
        self.ceiling = -1
        return False

    def spend(self, amount: int, at: int | None) -> None:
        """Count what was used, however much is left."""
        words = self.words
        if words is None or not self.purses.quick or not self._fits(1) or not self._bears(amount):
            self.purses.spend(self, amount, at)
        else:
            self._write(words, amount, self._honest(at) if amount > 0 else at, held=False)

    def hold(self, amount: int) -> None:
        """Hold something, however much is left; nothing that is more than can be counted."""
        if amount > 0 and not self._bears(amount):
            return
        if self.words is not None:
            self._write(self.words, max(amount, -self.held), None, held=True)
        elif amount > 0:
            self.purses.hold(self, amount)

    def _write(self, words: Words, amount: int, at: int | None, *, held: bool) -> None:
        if held:
            self.held += amount
            words[HELD] = self.held
            return
        self.used += amount
        if self.terms.within is None:
            words[USED] = self.used
            return
        log(words, self.count, at or 0, amount)
        self.count += 1

    def _honest(self, at: int | None) -> int:
        """A clock that runs backwards makes no draw older than those before it."""
        return max(at or 0, self.account.now or 0)

    def _fits(self, draws: int) -> bool:
        """Whether so many more draws can be remembered apart. A draw may have to be undone."""
        return self.plain or self.terms.within is None or self.count + draws - self.settled <= DRAWS

    def _bears(self, amount: int) -> bool:
        return -MOST <= amount <= MOST and self.used + self.held + amount <= MOST
