"""What one holder has on lease from a purse, and the words in which it says what became of it.

The holder alone writes how much it has used and holds, one word at a time, without asking anybody:
whoever is killed leaves true figures. To take back what a holder has not used, somebody else sets
the *fence* (the id's sign), waits until that and all earlier words have reached every processor,
and reads. The holder writes first and looks at the fence afterwards. So either it finds the fence,
or what it wrote is read: nothing is drawn that was taken back, also where the holder was stopped
in between for a day.
"""

from __future__ import annotations

import msgspec

from policyguard.evaluator.account import Account
from policyguard.store.protocol import Terms

Words = memoryview
"""Signed integers of 8 bytes."""

WORDS = 128
"""How many words a share has."""
ID, USED, HELD, COUNT, LOG = range(5)
"""Where what stands: the id (negative: fenced), then either what was used in all or, in a window,
how many draws there were, and the latest of them with their times."""
DRAWS = (WORDS - LOG) // 2
"""How many draws a share remembers until they are moved into the account."""
MOST = 2**62
"""What a share counts at most; what is larger is counted in the account at once."""


class Share(msgspec.Struct):
    """A lease as the store keeps it.

    The holder may use and hold as much as `ceiling`, ever since the share began. What the account
    has of its use is `moved`, `count` draws. `boot` is the machine's start, where the words are
    not to be trusted after another one.
    """

    id: int
    holder: int
    slot: int
    ceiling: int = 0
    moved: int = 0
    count: int = 0
    boot: str = ""

    def owns(self, words: Words | None) -> bool:
        """Whether these words are this share's: the file may have been lost."""
        return words is not None and abs(words[ID]) == self.id

    def used(self, words: Words, terms: Terms) -> int:
        """What was used, ever since the share began."""
        if terms.within is None:
            return int(words[USED])
        count = min(words[COUNT], self.count + DRAWS)
        return self.moved + sum(words[_place(n) + 1] for n in range(self.count, count))

    def reach(self, words: Words, terms: Terms) -> int:
        """What was used and is held. Held first: what is held becomes used, in this order."""
        held: int = words[HELD]
        return held + self.used(words, terms)

    def move(self, words: Words, account: Account, terms: Terms) -> bool:
        """Count in the account what was used since the last time; whether there was anything."""
        if terms.within is None:
            more = words[USED] - self.moved
            account.used += more
            self.moved += more
            return bool(more)
        until = words[COUNT]
        for number in range(self.count, until):
            place = _place(number)
            at, amount = words[place], words[place + 1]
            account.enter(amount, at, terms.within, terms.draws)
            self.moved += amount
        moved = until != self.count
        self.count = until
        return moved


def begin(words: Words, id_: int) -> None:
    """Make the words those of a new share."""
    words[ID] = 0
    words[USED] = words[HELD] = words[COUNT] = 0
    words[ID] = id_


def log(words: Words, count: int, at: int, amount: int) -> None:
    """Write down the draw after the first `count` ones."""
    place = _place(count)
    words[place] = at
    words[place + 1] = amount
    words[COUNT] = count + 1


def _place(number: int) -> int:
    return LOG + 2 * (number % DRAWS)
