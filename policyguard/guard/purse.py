"""Budgets of agents, users, projects and everybody: one purse for all processes of a store.

The evaluator judges by what is known of a purse. What it would admit is then drawn from what this
process has on lease, or asked of the store; where others have drawn the rest, it judges once more.
What is known is at most a second old, and fresh where a call is refused for it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from policyguard.evaluator.account import Account, Book
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.verdict import ALLOWED, Verdict
from policyguard.guard.keeper import EVERY
from policyguard.model.decision import Violation
from policyguard.model.event import Charge, Closed, Event, Granted, Released, Spent
from policyguard.model.quantity import UNIT, units
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Purse, PurseName, Purses, Terms

Judge = Callable[[Sequence[Violation]], Verdict]
"""Judges an attempt, given what was learned against it."""

_OWN = ("turn", "session")
"""Scopes that belong to one process."""


class _Shared(msgspec.Struct, frozen=True):
    """A budget of a shared scope, and what its purses are called and hold."""

    budget: Budget
    name: str
    terms: Terms


class _Hand:
    """A purse that this guard draws on, and until when (monotonic seconds) its figures are good."""

    __slots__ = ("budget", "good", "key", "purse", "terms")

    def __init__(self, budget: str, key: str, purse: Purse, terms: Terms) -> None:
        self.budget = budget
        self.key = key
        self.purse = purse
        self.terms = terms
        self.good = 0.0


class Purser:
    """Draws on shared budgets. To be used under the guard's lock.

    Whatever has to be counted and cannot be, since the store fails, is owed: no other call is
    judged before it has been paid. `StoreError` says so.
    """

    def __init__(self, purses: Purses, evaluator: Evaluator, book: Book) -> None:
        self._purses = purses
        self._book = book
        self._most = evaluator.bounds.budget_keys
        self._shared = {
            budget.id: _shared(evaluator.name, budget)
            for budget in evaluator.budgets.values()
            if budget.scope not in _OWN
        }
        self._post_paid = any(one.budget.post_paid for one in self._shared.values())
        self._holds = any(one.terms.held for one in self._shared.values())
        self._hands: OrderedDict[tuple[str, str], _Hand] = OrderedDict()
        self._paid: Attempt | None = None
        self._holding: dict[tuple[str, str], list[tuple[Purse, int]]] = {}
        self._owed: dict[tuple[str, str], tuple[int, int]] = {}
        for id_ in self._shared:
            book.sizes[id_] = 0

    def concerns(self, plan: Plan) -> bool:
        """Whether calls of this kind draw on shared budgets."""
        shared = self._shared
        for budget in plan.budgets:  # noqa: SIM110 - half as long as `any`, at every call
            if budget.id in shared:
                return True
        return False

    def judge(self, attempt: Attempt, judge: Callable[[], Verdict], *, admit: bool) -> Verdict:
        """The verdict with what all processes have drawn; with `admit` the call is paid."""
        self._paid = None
        while self._owed:
            place, debt = next(iter(self._owed.items()))
            self._count(*place, *debt)
            del self._owed[place]
        verdict = judge()
        draws = self._draws(attempt)
        now = time.monotonic()
        late = [
            hand
            for hand, amount in draws
            if hand.good < now or not (admit or hand.purse.room(amount))
        ]
        if admit and not late and verdict is ALLOWED and self._quickly(draws, attempt.at):
            self._paid = attempt
            return verdict
        if late:
            self._look(late, attempt.at)
            verdict = judge()
            draws = self._draws(attempt)
        if not verdict.allowed and self._refuses(verdict):
            verdict = self._again(attempt, judge)
            draws = self._draws(attempt)
        if not admit or not verdict.allowed:
            return verdict
        if not self._pay(draws, verdict, attempt.at):
            verdict = judge()
            if not verdict.allowed:
                return verdict
            self._force(draws, attempt.at)  # it was approved, or is only advised against
        self._paid = attempt
        return verdict

    def admit(self, attempt: Attempt, given_up: Attempt | None) -> None:
        """A call was let through. What it could not pay, since the store failed, is owed."""
        if given_up is not None:
            self.give_up(given_up, attempt.at)
        paid = self._paid is attempt
        self._paid = None
        if paid and not self._holds:
            return
        held = []
        for charge in attempt.charges:
            shared = self._shared.get(charge.budget)
            if shared is None or not charge.amount:
                continue
            if not shared.terms.held:
                if not paid:
                    self._owe(charge.budget, charge.key, charge.amount, attempt.at)
            elif paid:
                held.append((self._hand(charge.budget, charge.key).purse, charge.amount))
        if held:
            self._holding[attempt.session.id, attempt.id] = held

    def complete(self, attempt: Attempt, charges: tuple[Charge, ...], at: int | None) -> None:
        """A call has its result: what it used is known, and nothing is held for it any more."""
        if self._post_paid:
            further = {charge.budget: charge.amount for charge in charges}
            for charge in attempt.charges:
                shared = self._shared.get(charge.budget)
                if shared is not None and shared.budget.post_paid:
                    amount = charge.amount + further.get(charge.budget, 0)
                    self._spend(charge.budget, charge.key, amount, at)
        self._free(attempt)

    def follow(self, session: SessionState, event: Event) -> None:
        """Take in what else happens. `StoreError` where a grant cannot be written down."""
        match event:
            case Released():
                attempt = session.flights.get(event.call)
                if attempt is not None:
                    self._release(attempt)
            case Spent():
                for charge in event.charges:
                    if charge.budget in self._shared:
                        self._spend(charge.budget, charge.key, charge.amount, event.at)
            case Granted():
                self._grant(session, event)
            case Closed():
                for attempt in session.flights.values():
                    self.give_up(attempt, event.at)

    def _release(self, attempt: Attempt) -> None:
        """A call did not run: what it drew is given back."""
        for charge in attempt.charges:
            shared = self._shared.get(charge.budget)
            if shared is not None and not shared.terms.held:
                self._spend(charge.budget, charge.key, -charge.amount, attempt.at)
        self._free(attempt)

    def give_up(self, attempt: Attempt, at: int | None) -> None:
        """Nobody will report a call: what was held for it counts as used, but for places."""
        for charge in attempt.charges:
            shared = self._shared.get(charge.budget)
            if shared is not None and shared.budget.post_paid:
                self._spend(charge.budget, charge.key, charge.amount, at)
        self._free(attempt)

    def _grant(self, session: SessionState, event: Granted) -> None:
        """A budget is raised for every process."""
        shared = self._shared.get(event.budget)
        if shared is None:
            return
        scope = session.scopes[shared.budget.scope]
        name = PurseName(shared.name, event.key or scope, scope)
        self._purses.grant(name, units(event.amount) or 0)

    def doubt(self) -> None:
        """What is known may be wrong: a session was rebuilt, whose draws the store has long had."""
        for hand in self._hands.values():
            hand.good = 0.0

    def _draws(self, attempt: Attempt) -> list[tuple[_Hand, int]]:
        """What a call draws on which purses."""
        shared = self._shared
        return [
            (self._hand(charge.budget, charge.key), charge.amount)
            for charge in attempt.charges
            if charge.budget in shared
        ]

    def close(self) -> None:
        """Give back what is on lease. Raises `StoreError`."""
        self._purses.close([hand.purse for hand in self._hands.values()])

    def _hand(self, budget: str, key: str) -> _Hand:
        hand = self._hands.get((budget, key))
        return self._open(budget, key) if hand is None else hand

    def _open(self, budget: str, key: str) -> _Hand:
        """Another purse; where there are too many, one that was not used of late is closed."""
        shared = self._shared[budget]
        name = PurseName(shared.name, key, key.partition("\x1f")[0])
        purse = self._purses.open(name, shared.terms)
        if len(self._hands) >= self._most:
            for place, hand in self._hands.items():
                if not hand.purse.holding:
                    self._purses.close([hand.purse])
                    del self._hands[place]
                    self._book.close(*place)
                    break
        hand = self._hands[budget, key] = _Hand(budget, key, purse, shared.terms)
        return hand

    def _refuses(self, verdict: Verdict) -> bool:
        return any(violation.id in self._shared for violation in verdict.violations)

    def _again(self, attempt: Attempt, judge: Callable[[], Verdict]) -> Verdict:
        """Judge by what stands in the store now, before anybody is refused for it."""
        full = [id_ for id_ in self._shared if self._book.sizes[id_]]
        if full:
            self._book.sizes.update(dict.fromkeys(full, 0))
            judge()  # for what it draws under keys for which there was no room
        self._look([hand for hand, _ in self._draws(attempt)], attempt.at, settle=True)
        return judge()

    def _look(self, hands: list[_Hand], at: int | None, *, settle: bool = False) -> None:
        self._purses.look([hand.purse for hand in hands], at, settle=settle)
        self._take_down(hands)

    def _take_down(self, hands: list[_Hand]) -> None:
        """Have in the book what the store has said."""
        good = time.monotonic() + EVERY
        for hand in hands:
            budget, key, purse = hand.budget, hand.key, hand.purse
            if purse.full:
                self._book.sizes[budget] = purse.full
                self._book.close(budget, key)
                self._hands.pop((budget, key), None)
                continue
            self._book.put(budget, key, purse.account)
            scope, keyed, _ = key.partition("\x1f")
            if keyed:
                self._book.open(budget, scope).granted = purse.granted
            hand.good = good
            if (budget, key) in self._hands:
                self._hands.move_to_end((budget, key))

    def _pay(self, draws: list[tuple[_Hand, int]], verdict: Verdict, at: int | None) -> bool:
        """Draw what the call takes, all or nothing."""
        beyond: list[tuple[_Hand, int]] = []
        if verdict.violations or verdict.would:
            beyond = [(hand, amount) for hand, amount in draws if self._exceeds(hand, amount, at)]
            draws = [draw for draw in draws if draw not in beyond]
        if not self._quickly(draws, at):
            paid = self._purses.ask([(hand.purse, amount) for hand, amount in draws], at)
            self._take_down([hand for hand, _ in draws])
            if not paid:
                return False
        self._force(beyond, at)
        return True

    def _exceeds(self, hand: _Hand, amount: int, at: int | None) -> bool:
        """Whether a call that the policy lets run takes more than is left, as far as is known here.

        Then nobody needs to be asked.
        """
        account, terms = self._book.get(hand.budget, hand.key) or Account(), hand.terms
        scope, keyed, _ = hand.key.partition("\x1f")
        above = self._book.get(hand.budget, scope) if keyed else None
        granted = account.granted + (above.granted if above is not None else 0)
        used = account.open * UNIT if terms.places else account.used_at(at, terms.within)
        return amount > terms.limit + granted - used

    def _quickly(self, draws: list[tuple[_Hand, int]], at: int | None) -> bool:
        """Draw from what is on lease, if it is enough everywhere."""
        if len(draws) > 1:
            for hand, amount in draws:
                if not hand.purse.room(amount):
                    return False
        for number, (hand, amount) in enumerate(draws):
            if not hand.purse.pay(amount, at):
                for one, drawn in draws[:number]:
                    if one.terms.held:
                        one.purse.hold(-drawn)
                    else:
                        self._spend(one.budget, one.key, -drawn, at)
                return False
        return True

    def _force(self, draws: list[tuple[_Hand, int]], at: int | None) -> None:
        """Draw although it is too much: the policy lets the call run all the same."""
        for hand, amount in draws:
            if not hand.terms.held:
                self._spend(hand.budget, hand.key, amount, at)
                continue
            with suppress(StoreError):  # what cannot be held is not owed: it would come back anyway
                hand.purse.hold(amount)

    def _free(self, attempt: Attempt) -> None:
        if self._holding:
            for purse, amount in self._holding.pop((attempt.session.id, attempt.id), ()):
                purse.hold(-amount)

    def _spend(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Count what was used, or owe it."""
        if amount:
            try:
                self._count(budget, key, amount, at)
            except StoreError:
                self._owe(budget, key, amount, at)

    def _count(self, budget: str, key: str, amount: int, at: int | None) -> None:
        self._hand(budget, key).purse.spend(amount, at)

    def _owe(self, budget: str, key: str, amount: int, at: int | None) -> None:
        """Debts to one purse become one, as of the latest: a window forgets it late, not early."""
        owed, then = self._owed.get((budget, key), (0, 0))
        self._owed[budget, key] = owed + amount, max(then, at or 0)


def purser_of(purses: Purses | None, evaluator: Evaluator, book: Book) -> Purser | None:
    """Who draws on a policy's shared budgets; None where there are none, or no store."""
    if purses is None or all(budget.scope in _OWN for budget in evaluator.budgets.values()):
        return None
    return Purser(purses, evaluator, book)


def repeatable(
    attempt: Attempt, plan: Plan, learned: Sequence[Violation], judge: Judge
) -> Callable[[], Verdict]:
    """Judge an attempt as if it had not been judged before, as often as is wanted."""
    known = attempt.faults

    def again() -> Verdict:
        attempt.charges, attempt.asks, attempt.insisted = (), (), ()
        attempt.faults = known
        attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by
        return judge(learned)

    return again


def _shared(policy: str, budget: Budget) -> _Shared:
    """A purse is a policy's: another policy may have an unrelated budget of the same name.

    Nor does a budget go on with figures that meant something else.
    """
    span = " in a window" if budget.within is not None else ""
    places = budget.kind == "at_once"
    return _Shared(
        budget,
        f"{policy}/{budget.id}: {budget.kind} per {budget.scope}{span}",
        Terms(
            limit=budget.max,
            within=budget.within,
            held=places or budget.post_paid,
            places=places,
            draws=budget.most,
            keys=budget.most_keys,
        ),
    )
