"""The usage of budgets by scope and key, in the ledger that all sessions share.

Amounts are integers (see `model.amounts`): money adds up exactly, and a third call of 0.1 fits a
budget of 0.3.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from policyguard.evaluator.budgets.distinct import DistinctValues


class AheadCharge(NamedTuple):
    """A charge dated `at`, later than the clock that first read it: then, it was `seen_at` (ns)."""

    at: int
    seen_at: int
    amount: int


class BudgetUsage(msgspec.Struct, eq=False):
    """The usage of one budget under one key.

    `started_at` is when the first call was admitted (ns), `running` how many calls are. A budget
    with a time window keeps its charges; beyond `max_charges` the oldest two become one with the
    later time, so that charges are dropped late, never early. Charges `ahead` were made under a
    clock that was ahead: they count from when they are seen, not when their time comes. `values`
    are those of a budget of distinct values.
    """

    used: int = 0
    granted: int = 0
    running: int = 0
    started_at: int | None = None
    latest_at: int | None = None
    charges: deque[tuple[int, int]] | None = None
    ahead: tuple[AheadCharge, ...] = ()
    values: DistinctValues | None = None

    def redate(self, at: int, within: int, max_charges: int) -> bool:
        """Set apart the charges beyond `at` (ns); return whether anything changed.

        They count for one window from `at`. One whose time comes sooner was made under a clock that
        is right, and was seen by one that is behind: it counts from its time as ever.
        """
        charges, ahead = self.charges or deque(), self.ahead
        is_kept = all(at - within < one.seen_at <= at < one.at for one in ahead)
        if is_kept and not (charges and charges[-1][0] > at):
            return False
        kept = [one._replace(seen_at=min(at, one.seen_at)) for one in ahead if one.at > at]
        while charges and charges[-1][0] > at:
            charged_at, amount = charges.pop()
            kept.append(AheadCharge(charged_at, at, amount))
        if self.latest_at is not None and self.latest_at > at:
            self.latest_at = at
        self.used -= sum(one.amount for one in ahead if one.at <= at)
        self.used -= sum(one.amount for one in kept if one.seen_at <= at - within)
        self.ahead = tuple(one for one in kept if one.seen_at > at - within)
        for one in ahead:
            if one.at <= at:
                self.insert_charge(one.amount, one.at, within, max_charges)
        return True

    def add_ahead(self, charged_at: int, seen_at: int, amount: int, max_charges: int) -> None:
        """Count a charge at `charged_at`, which is later than the present, `seen_at`."""
        self.used += amount
        self.ahead = (*self.ahead, AheadCharge(charged_at, seen_at, amount))
        if len(self.ahead) > max_charges:
            first, second, *others = self.ahead
            latest = max(first.at, second.at), max(first.seen_at, second.seen_at)
            self.ahead = (AheadCharge(*latest, first.amount + second.amount), *others)

    def charge(self, amount: int, at: int | None, within: int | None, max_charges: int) -> None:
        """Count `amount` at `at`; a negative amount refunds what was charged at `at`.

        A clock that runs backwards makes no charge older than the ones before.
        """
        if at is not None and amount >= 0:
            if self.ahead:
                self.add_ahead(self.clamp_time(at), at, amount, max_charges)
                return
            at = self.clamp_time(at)
        self.insert_charge(amount, at, within, max_charges)

    def settle(
        self,
        amount: int,
        charged_at: int | None,
        now: int | None,
        within: int | None,
        max_charges: int,
    ) -> None:
        """Count what a lease covered at `charged_at`, which may be later than `now` (ns)."""
        if within is None or charged_at is None or now is None or charged_at <= now or amount < 0:
            self.insert_charge(amount, charged_at, within, max_charges)
        else:
            self.add_ahead(charged_at, now, amount, max_charges)

    def clamp_time(self, at: int) -> int:
        """Return `at`, or the time of the latest charge if that is later."""
        if self.ahead:
            at = max(at, *(one.at for one in self.ahead))
        return at if self.latest_at is None or at >= self.latest_at else self.latest_at

    def expires_at(self, within: int | None) -> int | None:
        """Return from when on (ns) nothing in it counts; None if that may be never."""
        if within is None or self.latest_at is None or self.granted:
            return None
        return max([self.latest_at, *(one.seen_at for one in self.ahead)]) + within

    def insert_charge(
        self, amount: int, at: int | None, within: int | None, max_charges: int
    ) -> None:
        """Count an amount at `at`, which may lie before charges that are counted already."""
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
        charges = self.charges
        window_start = self.latest_at - within
        while charges and charges[0][0] <= window_start:
            self.used -= charges.popleft()[1]
        if not amount or at <= window_start:
            return
        self.used += amount
        index = len(charges)
        while index and charges[index - 1][0] > at:
            index -= 1
        charges.insert(index, (at, amount))
        if len(charges) > max_charges:
            first = charges.popleft()
            second = charges.popleft()
            charges.appendleft((second[0], first[1] + second[1]))

    def refund(self, amount: int, at: int | None, within: int | None) -> None:
        """Undo a charge of `amount` made at `at`, unless it has left the window.

        Refund the first charge of that amount since `at`, else the oldest charges: the later ones
        stay, so nothing is dropped too early.
        """
        window_start = None
        if within is not None and self.latest_at is not None:
            window_start = self.latest_at - within
        if at is not None and window_start is not None and at <= window_start:
            return
        self.used -= amount
        if at is not None:
            for one in self.ahead:
                if (one.at, one.amount) == (at, amount):
                    self.ahead = tuple(other for other in self.ahead if other is not one)
                    return
        charges = self.charges
        if not charges:
            return
        for index, (charged_at, charged) in enumerate(charges):
            if charged == amount and (at is None or charged_at >= at):
                del charges[index]
                return
        while amount > 0 and charges:
            charged_at, charged = charges.popleft()
            if charged > amount:
                charges.appendleft((charged_at, charged - amount))
            amount -= charged

    def copy(self) -> BudgetUsage:
        """Return an independent copy."""
        charges = self.charges.copy() if self.charges is not None else None
        values = self.values.copy() if self.values is not None else None
        return replace(self, charges=charges, values=values)

    def used_at(self, at: int | None, within: int | None) -> int:
        """Return what counts at `at`: all, or the charges of the last `within` nanoseconds."""
        if within is None or at is None or not (self.charges or self.ahead):
            return self.used
        dropped = sum(one.amount for one in self.ahead if one.seen_at <= at - within)
        for charged_at, amount in self.charges or ():
            if charged_at > at - within:
                break
            dropped += amount
        return self.used - dropped

    def fits_at(self, needed: int, within: int, at: int) -> int | None:
        """Return when `needed` more will have left the window than at `at`; None if never."""
        ahead = [(one.seen_at, one.amount) for one in self.ahead]
        charges: list[tuple[int, int]] = sorted([*(self.charges or ()), *ahead])
        for charged_at, amount in charges:
            if charged_at <= at - within:
                continue
            needed -= amount
            if needed <= 0:
                return charged_at + within
        return None


class UsageLedger(msgspec.Struct, eq=False):
    """The usage of all budgets, by budget and key.

    For budgets shared through a store it holds what is known of them, and `stored_key_counts` how
    many keys the store has once there is no room for more, else 0.
    """

    usages: dict[str, dict[str, BudgetUsage]] = msgspec.field(default_factory=dict)
    stored_key_counts: dict[str, int] = msgspec.field(default_factory=dict)

    def get(self, budget: str, key: str) -> BudgetUsage | None:
        """Return the usage; None if nothing was ever charged or granted."""
        usages = self.usages.get(budget)
        return usages.get(key) if usages is not None else None

    def get_or_create(self, budget: str, key: str) -> BudgetUsage:
        """Return the usage, new where there is none."""
        usages = self.usages.setdefault(budget, {})
        usage = usages.get(key)
        if usage is None:
            usage = usages[key] = BudgetUsage()
        return usage

    def raise_limit(self, budget: str, key: str, amount: int) -> None:
        """Raise the limit of one usage."""
        self.get_or_create(budget, key).granted += amount

    def set(self, budget: str, key: str, usage: BudgetUsage) -> None:
        """Set the usage that a store has returned."""
        self.usages.setdefault(budget, {})[key] = usage

    def key_count(self, budget: str) -> int:
        """Return how many keys a budget has."""
        count = self.stored_key_counts.get(budget)
        return len(self.usages.get(budget, ())) if count is None else count

    def remove(self, budget: str, key: str) -> None:
        """Forget the usage of a scope that is over."""
        self.usages.get(budget, {}).pop(key, None)
