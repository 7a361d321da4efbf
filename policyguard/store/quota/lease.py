"""A holder's lease on a quota, and the shared words in which it records its usage.

Only the holder writes its usage and reservations, one word at a time, without coordination, so a
killed process leaves correct figures. To reclaim what a holder has not used, another process sets
the *fence* (the sign of the id), waits until that and all earlier words have reached every
processor, and reads. The holder writes first and checks the fence afterwards. So either it sees the
fence, or its charge is read: nothing reclaimed is charged, even if the holder was stopped for a day
in between.
"""

from __future__ import annotations

import msgspec

from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.store.quota.protocol import QuotaSpec

SlotWords = memoryview
"""Signed 8-byte integers."""

WORDS_PER_SLOT = 128
ID, USED, RESERVED, COUNT, LOG = range(5)
"""The layout: the id (negative: fenced), the usage, the reservations; in a window, instead of the
usage, the number of charges and a log of the latest with their times."""
LOG_CAPACITY = (WORDS_PER_SLOT - LOG) // 2
"""The number of charges in the log until they are settled."""
MAX_AMOUNT = 2**62
"""The most that a lease counts; larger amounts are counted in the store at once."""


class QuotaLease(msgspec.Struct):
    """A lease as the store keeps it.

    The holder may use and reserve up to `ceiling` over the lease's life. The store's usage includes
    `settled_amount`, in `settled_count` charges. If `boot_id` is set, the words are void after
    another boot.
    """

    id: int
    holder: int
    slot: int
    ceiling: int = 0
    settled_amount: int = 0
    settled_count: int = 0
    boot_id: str = ""

    def owns(self, words: SlotWords | None) -> bool:
        """Return whether the words are this lease's: their file may have been lost."""
        return words is not None and abs(words[ID]) == self.id

    def used_amount(self, words: SlotWords, spec: QuotaSpec) -> int:
        """Return the usage over the lease's life."""
        if spec.within is None:
            return int(words[USED])
        return self.settled_amount + sum(amount for _, amount in self.list_unsettled(words))

    def list_unsettled(self, words: SlotWords) -> list[tuple[int, int]]:
        """Return the charges in a window's log that the store has not, each its time and amount."""
        count = min(words[COUNT], self.settled_count + LOG_CAPACITY)
        indexes = map(_log_index, range(self.settled_count, count))
        return [(words[index], words[index + 1]) for index in indexes]

    def committed_amount(self, words: SlotWords, spec: QuotaSpec) -> int:
        """Return usage and reservations; reservations are read first, as they become usage."""
        reserved: int = words[RESERVED]
        return reserved + self.used_amount(words, spec)

    def settle(
        self, words: SlotWords, usage: BudgetUsage, spec: QuotaSpec, now: int | None
    ) -> bool:
        """Add the unsettled usage to `usage` at `now` (ns); return whether there was any."""
        if spec.within is None:
            unsettled = words[USED] - self.settled_amount
            usage.used += unsettled
            self.settled_amount += unsettled
            return bool(unsettled)
        charges = self.list_unsettled(words)
        for at, amount in charges:
            usage.settle(amount, at, now, spec.within, spec.max_charges)
            self.settled_amount += amount
        self.settled_count += len(charges)
        return bool(charges)


def reset_words(words: SlotWords, id_: int) -> None:
    """Reset the words for a new lease."""
    words[ID] = 0
    words[USED] = words[RESERVED] = words[COUNT] = 0
    words[ID] = id_


def log_charge(words: SlotWords, count: int, at: int, amount: int) -> None:
    """Log a charge after the first `count` ones."""
    index = _log_index(count)
    words[index] = at
    words[index + 1] = amount
    words[COUNT] = count + 1


def has_logged(words: SlotWords, numbers: range, at: int, amount: int) -> bool:
    """Return whether one of these charges in the log is of this time and amount."""
    return any(
        words[index] == at and words[index + 1] == amount for index in map(_log_index, numbers)
    )


def _log_index(number: int) -> int:
    return LOG + 2 * (number % LOG_CAPACITY)
