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

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.protocol import QuotaSpec

SlotWords = memoryview
"""Signed integers of 8 bytes."""

WORDS_PER_SLOT = 128
"""How many words a share has."""
ID, USED, RESERVED, COUNT, LOG = range(5)
"""Where what stands: the id (negative: fenced), then either what was used in all or, in a window,
how many draws there were, and the latest of them with their times."""
LOG_CAPACITY = (WORDS_PER_SLOT - LOG) // 2
"""How many draws a share remembers until they are moved into the account."""
MAX_AMOUNT = 2**62
"""What a share counts at most; what is larger is counted in the account at once."""


class QuotaLease(msgspec.Struct):
    """A lease as the store keeps it.

    The holder may use and hold as much as `ceiling`, ever since the share began. What the account
    has of its use is `moved`, `count` draws. `boot` is the machine's start, where the words are
    not to be trusted after another one.
    """

    id: int
    holder: int
    slot: int
    ceiling: int = 0
    settled_amount: int = 0
    settled_count: int = 0
    boot_id: str = ""

    def owns(self, words: SlotWords | None) -> bool:
        """Whether these words are this share's: the file may have been lost."""
        return words is not None and abs(words[ID]) == self.id

    def used_amount(self, words: SlotWords, spec: QuotaSpec) -> int:
        """What was used, ever since the share began."""
        if spec.within is None:
            return int(words[USED])
        count = min(words[COUNT], self.settled_count + LOG_CAPACITY)
        return self.settled_amount + sum(
            words[_log_index(n) + 1] for n in range(self.settled_count, count)
        )

    def committed_amount(self, words: SlotWords, spec: QuotaSpec) -> int:
        """What was used and is held. Held first: what is held becomes used, in this order."""
        held: int = words[RESERVED]
        return held + self.used_amount(words, spec)

    def settle(self, words: SlotWords, usage: BudgetUsage, spec: QuotaSpec) -> bool:
        """Count in the account what was used since the last time; whether there was anything."""
        if spec.within is None:
            more = words[USED] - self.settled_amount
            usage.used += more
            self.settled_amount += more
            return bool(more)
        until = words[COUNT]
        for number in range(self.settled_count, until):
            place = _log_index(number)
            at, amount = words[place], words[place + 1]
            usage.insert_charge(amount, at, spec.within, spec.max_charges)
            self.settled_amount += amount
        moved = until != self.settled_count
        self.settled_count = until
        return moved


def reset_words(words: SlotWords, id_: int) -> None:
    """Make the words those of a new share."""
    words[ID] = 0
    words[USED] = words[RESERVED] = words[COUNT] = 0
    words[ID] = id_


def log_charge(words: SlotWords, count: int, at: int, amount: int) -> None:
    """Write down the draw after the first `count` ones."""
    place = _log_index(count)
    words[place] = at
    words[place + 1] = amount
    words[COUNT] = count + 1


def _log_index(number: int) -> int:
    return LOG + 2 * (number % LOG_CAPACITY)
