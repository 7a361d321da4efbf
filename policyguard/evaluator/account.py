"""What has been drawn from a budget, per scope and key: the book that all sessions share.

Amounts are integers, in units of 1e-9 of the budget's own unit: money adds up exactly, and a
third call of 0.1 fits a budget of 0.3.
"""

from __future__ import annotations

from collections import deque

UNIT = 1_000_000_000


class Account:
    """One budget's use in one scope.

    `start` is when the scope's first call was admitted (ns), `open` how many calls are running.
    A budget with a time window keeps its draws; once they are more than `most`, the oldest two
    become one with the later time, so that what is forgotten is forgotten late, never early.
    """

    __slots__ = ("draws", "granted", "now", "open", "start", "used")

    def __init__(self) -> None:
        self.used = 0
        self.granted = 0
        self.open = 0
        self.start: int | None = None
        self.now: int | None = None
        self.draws: deque[tuple[int, int]] | None = None

    def draw(self, amount: int, at: int | None, within: int | None, most: int) -> None:
        """Count `amount`, at `at`; a negative amount gives back what was reserved too much."""
        if amount < 0:
            self.give_back(-amount)
            return
        self.used += amount
        if at is None:
            return
        if self.start is None:
            self.start = at
        if within is None:
            return
        self.now = at = at if self.now is None else max(at, self.now)
        if self.draws is None:
            self.draws = deque()
        draws = self.draws
        while draws and draws[0][0] <= at - within:
            self.used -= draws.popleft()[1]
        if not amount:
            return
        draws.append((at, amount))
        if len(draws) > most:
            first = draws.popleft()
            second = draws.popleft()
            draws.appendleft((second[0], first[1] + second[1]))

    def give_back(self, amount: int) -> None:
        """Undo a draw of `amount`: the latest of that size, else what the oldest draws hold.

        The oldest leave the window first, so nothing is ever forgotten too early.
        """
        self.used -= amount
        draws = self.draws
        if not draws:
            return
        for place in range(len(draws) - 1, -1, -1):
            if draws[place][1] == amount:
                del draws[place]
                return
        while amount > 0 and draws:
            at, held = draws.popleft()
            if held > amount:
                draws.appendleft((at, held - amount))
            amount -= held

    def used_at(self, at: int | None, within: int | None) -> int:
        """What counts at `at`: all, or the draws of the last `within` nanoseconds."""
        if within is None or at is None or not self.draws:
            return self.used
        past = 0
        for drawn, amount in self.draws:
            if drawn > at - within:
                break
            past += amount
        return self.used - past

    def frees_at(self, needed: int, within: int) -> int | None:
        """When enough draws will have left the window for `needed` to fit; None if never."""
        for drawn, amount in self.draws or ():
            needed -= amount
            if needed <= 0:
                return drawn + within
        return None


class Book:
    """The accounts of all budgets, by budget and key."""

    __slots__ = ("accounts",)

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, Account]] = {}

    def get(self, budget: str, key: str) -> Account | None:
        """The account, if anything was ever drawn or granted."""
        accounts = self.accounts.get(budget)
        return accounts.get(key) if accounts is not None else None

    def open(self, budget: str, key: str) -> Account:
        """The account, made where it is new."""
        accounts = self.accounts.setdefault(budget, {})
        account = accounts.get(key)
        if account is None:
            account = accounts[key] = Account()
        return account

    def size(self, budget: str) -> int:
        """How many keys a budget has."""
        return len(self.accounts.get(budget, ()))

    def close(self, budget: str, key: str) -> None:
        """Forget an account whose scope is over."""
        self.accounts.get(budget, {}).pop(key, None)
