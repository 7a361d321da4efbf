"""What has been drawn from a budget, per scope and key: the book that all sessions share.

Amounts are integers (`model.quantity`): money adds up exactly, and a third call of 0.1 fits a
budget of 0.3.
"""

from __future__ import annotations

from collections import deque


class BudgetUsage:
    """One budget's use in one scope.

    `start` is when the scope's first call was admitted (ns), `open` how many calls are running.
    A budget with a time window keeps its draws; once they are more than `most`, the oldest two
    become one with the later time, so that what is forgotten is forgotten late, never early.
    """

    __slots__ = ("charges", "granted", "latest_at", "running", "started_at", "used")

    def __init__(self) -> None:
        self.used = 0
        self.granted = 0
        self.running = 0
        self.started_at: int | None = None
        self.latest_at: int | None = None
        self.charges: deque[tuple[int, int]] | None = None

    def charge(self, amount: int, at: int | None, within: int | None, max_charges: int) -> None:
        """Count `amount`, at `at`; a negative amount gives back what was drawn at `at`.

        A clock that runs backwards makes no draw older than what has been drawn before.
        """
        if at is not None and self.latest_at is not None and amount >= 0:
            at = max(at, self.latest_at)
        self.insert_charge(amount, at, within, max_charges)

    def insert_charge(
        self, amount: int, at: int | None, within: int | None, max_charges: int
    ) -> None:
        """Count what was drawn at `at`, maybe before others that are counted already."""
        if amount < 0:
            self.refund(-amount, at, within)
            return
        if at is not None and self.started_at is None:
            self.started_at = at
        if at is None or within is None:
            self.used += amount
            return
        if self.latest_at is None or at > self.latest_at:
            self.latest_at = at
        if self.charges is None:
            self.charges = deque()
        draws = self.charges
        past = self.latest_at - within
        while draws and draws[0][0] <= past:
            self.used -= draws.popleft()[1]
        if not amount or at <= past:
            return
        self.used += amount
        place = len(draws)
        while place and draws[place - 1][0] > at:
            place -= 1
        draws.insert(place, (at, amount))
        if len(draws) > max_charges:
            first = draws.popleft()
            second = draws.popleft()
            draws.appendleft((second[0], first[1] + second[1]))

    def refund(self, amount: int, at: int | None, within: int | None) -> None:
        """Undo a draw of `amount` made at `at`, unless it has left the window.

        What is undone is the first draw of that size since, else what the oldest draws hold: those
        that stay are the later ones, so nothing is ever forgotten too early.
        """
        past = (
            self.latest_at - within if self.latest_at is not None and within is not None else None
        )
        if at is not None and past is not None and at <= past:
            return
        self.used -= amount
        draws = self.charges
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

    def copy(self) -> BudgetUsage:
        """An account of its own with the same figures."""
        copy = BudgetUsage()
        copy.used, copy.granted, copy.running = self.used, self.granted, self.running
        copy.started_at, copy.latest_at = self.started_at, self.latest_at
        copy.charges = self.charges.copy() if self.charges is not None else None
        return copy

    def used_at(self, at: int | None, within: int | None) -> int:
        """What counts at `at`: all, or the draws of the last `within` nanoseconds."""
        if within is None or at is None or not self.charges:
            return self.used
        past = 0
        for drawn, amount in self.charges:
            if drawn > at - within:
                break
            past += amount
        return self.used - past

    def fits_at(self, needed: int, within: int) -> int | None:
        """When enough draws will have left the window for `needed` to fit; None if never."""
        for drawn, amount in self.charges or ():
            needed -= amount
            if needed <= 0:
                return drawn + within
        return None


class UsageLedger:
    """The accounts of all budgets, by budget and key.

    Where a store keeps the accounts of a budget, those here are what is known of them, and `sizes`
    has how many there are in the store once there is no room for more, else 0.
    """

    __slots__ = ("stored_key_counts", "usages")

    def __init__(self) -> None:
        self.usages: dict[str, dict[str, BudgetUsage]] = {}
        self.stored_key_counts: dict[str, int] = {}

    def get(self, budget: str, key: str) -> BudgetUsage | None:
        """The account, if anything was ever drawn or granted."""
        accounts = self.usages.get(budget)
        return accounts.get(key) if accounts is not None else None

    def get_or_create(self, budget: str, key: str) -> BudgetUsage:
        """The account, made where it is new."""
        accounts = self.usages.setdefault(budget, {})
        account = accounts.get(key)
        if account is None:
            account = accounts[key] = BudgetUsage()
        return account

    def set(self, budget: str, key: str, usage: BudgetUsage) -> None:
        """Set an account: a store has told what stands there."""
        self.usages.setdefault(budget, {})[key] = usage

    def key_count(self, budget: str) -> int:
        """How many keys a budget has."""
        size = self.stored_key_counts.get(budget)
        return len(self.usages.get(budget, ())) if size is None else size

    def remove(self, budget: str, key: str) -> None:
        """Forget an account whose scope is over."""
        self.usages.get(budget, {}).pop(key, None)
