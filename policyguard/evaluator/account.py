"""What has been drawn from a budget, per scope and key: the book that all sessions share.

Amounts are integers (`model.quantity`): money adds up exactly, and a third call of 0.1 fits a
budget of 0.3.
"""

from __future__ import annotations

from collections import deque


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
        """Count `amount`, at `at`; a negative amount gives back what was drawn at `at`.

        A clock that runs backwards makes no draw older than what has been drawn before.
        """
        if at is not None and self.now is not None and amount >= 0:
            at = max(at, self.now)
        self.enter(amount, at, within, most)

    def enter(self, amount: int, at: int | None, within: int | None, most: int) -> None:
        """Count what was drawn at `at`, maybe before others that are counted already."""
        if amount < 0:
            self.give_back(-amount, at, within)
            return
        if at is not None and self.start is None:
            self.start = at
        if at is None or within is None:
            self.used += amount
            return
        if self.now is None or at > self.now:
            self.now = at
        if self.draws is None:
            self.draws = deque()
        draws = self.draws
        past = self.now - within
        while draws and draws[0][0] <= past:
            self.used -= draws.popleft()[1]
        if not amount or at <= past:
            return
        self.used += amount
        place = len(draws)
        while place and draws[place - 1][0] > at:
            place -= 1
        draws.insert(place, (at, amount))
        if len(draws) > most:
            first = draws.popleft()
            second = draws.popleft()
            draws.appendleft((second[0], first[1] + second[1]))

    def give_back(self, amount: int, at: int | None, within: int | None) -> None:
        """Undo a draw of `amount` made at `at`, unless it has left the window.

        What is undone is the first draw of that size since, else what the oldest draws hold: those
        that stay are the later ones, so nothing is ever forgotten too early.
        """
        past = self.now - within if self.now is not None and within is not None else None
        if at is not None and past is not None and at <= past:
            return
        self.used -= amount
        draws = self.draws
        if not draws:
            return
        for place, (drawn, held) in enumerate(draws):
            if held == amount and (at is None or drawn >= at):
                del draws[place]
                return
        while amount > 0 and draws:
            drawn, held = draws.popleft()
            if held > amount:
                draws.appendleft((drawn, held - amount))
            amount -= held

    def copy(self) -> Account:
        """An account of its own with the same figures."""
        copy = Account()
        copy.used, copy.granted, copy.open = self.used, self.granted, self.open
        copy.start, copy.now = self.start, self.now
        copy.draws = self.draws.copy() if self.draws is not None else None
        return copy

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
    """The accounts of all budgets, by budget and key.

    Where a store keeps the accounts of a budget, those here are what is known of them, and `sizes`
    has how many there are in the store once there is no room for more, else 0.
    """

    __slots__ = ("accounts", "sizes")

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, Account]] = {}
        self.sizes: dict[str, int] = {}

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

    def put(self, budget: str, key: str, account: Account) -> None:
        """Set an account: a store has told what stands there."""
        self.accounts.setdefault(budget, {})[key] = account

    def size(self, budget: str) -> int:
        """How many keys a budget has."""
        size = self.sizes.get(budget)
        return len(self.accounts.get(budget, ())) if size is None else size

    def close(self, budget: str, key: str) -> None:
        """Forget an account whose scope is over."""
        self.accounts.get(budget, {}).pop(key, None)
