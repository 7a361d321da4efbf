"""The way of a call through one session: judged, admitted or refused, completed.

Each step turns what happened into an event, folds it, and writes it down, under the guard's lock.
Where nobody reads events none is made: the fold takes what the event would have said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator import paying
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.verdict import ALLOWED, Verdict
from policyguard.evaluator.walk import Walk
from policyguard.guard import answers
from policyguard.guard.advice import Advice
from policyguard.guard.purse import repeatable
from policyguard.guard.warning import warn
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision, Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import (
    Charge,
    Closed,
    Completed,
    Drawn,
    Event,
    Granted,
    Released,
    Spent,
)
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


_ALLOW = Effect.ALLOW  # a member of an enum is slow to look up


_NUMBERED = re.compile("c([1-9][0-9]{0,14})")


def number(call: str) -> int:
    """Which call of its session has this id; 0 for an id that somebody else has given."""
    found = _NUMBERED.fullmatch(call)
    return int(found[1]) if found is not None else 0


class Calls:
    """The calls of one session. `made` is the latest one's number, refused ones included."""

    __slots__ = ("_advice", "_guard", "_made", "_state", "closed")

    def __init__(self, guard: Guard, state: SessionState, made: int) -> None:
        self._guard = guard
        self._state = state
        self._made = made
        self._advice = Advice(guard.evaluator.bounds.in_flight)
        self.closed = False

    def judge(self, attempt: Attempt, admit: bool, unfit: str = "") -> Decision:
        """Answer an attempt; with `admit` an allowed one is counted, a refused one noted.

        `unfit` says why its arguments cannot be judged, where that is known.
        """
        guard, state = self._guard, self._state
        world, walk = guard.world, None
        above: list[Drawn] | None = None
        with guard.lock:
            if admit:
                if guard.latest != state.id:
                    guard.touch(state.id)
                self._made += 1
                if not attempt.id:
                    attempt.id = f"c{self._made}"
            try:
                if self.closed:
                    verdict = answers.LEFT if guard.closed else answers.CLOSED
                    admit = False  # its journal has ended, or is another's by now
                elif unfit:
                    verdict = answers.unfit(attempt, unfit, observe=guard.stance.observe)
                else:
                    keeper = guard.keeper
                    if keeper is not None and monotonic() >= keeper.due:
                        keeper.look()
                    walk = guard.evaluator.prepare(attempt)
                    learned = (
                        world.judge(attempt) if world.memory.constraints or world.narrows else ()
                    )
                    purser = guard.purser
                    if purser is None or not purser.concerns(walk.plan):
                        verdict = guard.evaluator.judge(
                            world.state, attempt, walk, learned, guard.stance
                        )
                    else:
                        judge = partial(self._verdict, attempt, walk)
                        again = repeatable(attempt, walk.plan, learned, judge)
                        verdict = purser.judge(attempt, again, admit=admit)
            except ArgumentsError as error:
                verdict = answers.unfit(attempt, str(error), observe=guard.stance.observe)
            except Exception as error:  # noqa: BLE001 - the policy says what a defect of ours means
                verdict = answers.broken(attempt, error, allow=self._lenient)
            if verdict is ALLOWED and attempt.timeout is None:  # the common case, made short
                own = attempt.exact or attempt.fingerprint
                decision = Decision(attempt.id, state.id, attempt.tool, _ALLOW, True, own)
            else:
                observe = guard.stance.observe
                decision = answers.decision(state.id, verdict, attempt, observe=observe)
            if not admit:
                return decision
            try:
                if not decision.allowed:
                    refused = answers.refused(decision, attempt)
                    world.refuse(state, refused)
                    guard.emit(refused, False)
                elif walk is not None:
                    world.admit(attempt)
                    teller = guard.teller
                    if teller is not None:
                        teller.admitted(attempt, decision)
                        if attempt.charges:
                            above = []
                            self._tell_above(attempt.charges, attempt.at, told=above)
                    if decision.violations:
                        self._advice.give(attempt.batch or decision.id, decision.message)
            except (JournalError, StoreError) as error:
                return self._unwritten(decision, attempt, error, above)
        return decision

    def _verdict(self, attempt: Attempt, walk: Walk, learned: Sequence[Violation]) -> Verdict:
        guard = self._guard
        return guard.evaluator.judge(guard.world.state, attempt, walk, learned, guard.stance)

    @property
    def _lenient(self) -> bool:
        """Whether what policyguard itself fails on runs."""
        return self._guard.stance.observe or self._guard.evaluator.allow_on_internal_error

    def _unwritten(
        self, decision: Decision, attempt: Attempt, error: Exception, above: list[Drawn] | None
    ) -> Decision:
        """The answer where an event could not be written down: as `on_internal_error` says.

        `above` is what those above have been told, None where the call itself was not.
        """
        fault = Fault("journal", str(error))
        if decision.allowed and not self._lenient:
            released = Released(self._state.id, attempt.at, decision.id)
            self._guard.world.fold(released)
            if above is not None:
                self._take_back([released, *map(_given_back, above)])
            elif isinstance(error, StoreError):  # it is written, and not anchored
                self._take_back([released])
            refused = answers.broken(attempt, error, allow=False)
            verdict = replace(refused, faults=(fault,))
            return answers.decision(self._state.id, verdict, attempt, observe=False)
        return replace(decision, errors=(*decision.errors, fault))

    def _take_back(self, events: Iterable[Event]) -> None:
        """What was written of an admission that is none is taken back in the journals, too."""
        for event in events:
            with suppress(JournalError, StoreError):  # the caller hears of the first
                self._guard.emit(event, False)

    def complete(self, event: Completed) -> Recorded:
        """Judge a result and count it; one of a call that is not in flight is only judged."""
        guard = self._guard
        with guard.lock:
            attempt = self._state.flights.get(event.call)
            if attempt is None:
                outcome = guard.evaluator.observer.observe(event, None, None)
                faults = (Fault("session/closed", self._over),) if self.closed else ()
                return Recorded(outcome=outcome, errors=faults, counted=False)
            at = self._state.clamp(event.at)
            outcome, charges = guard.evaluator.settle(attempt, event, at)
            world = guard.world
            lessons = world.lessons(attempt, event, outcome)
            if not lessons or guard.keeper is None:
                learned = world.complete(attempt, event, outcome, charges, lessons, at)
            else:
                learned = guard.keeper.complete(
                    lambda: world.complete(attempt, event, outcome, charges, lessons, at),
                    attempt,
                    lessons,
                    at,
                )
            teller = guard.teller
            if teller is not None:
                try:
                    teller.completed(event, at, outcome, charges, lessons, bool(learned))
                    if charges:
                        self._settle_above(charges, at, attempt)
                except (JournalError, StoreError) as error:
                    attempt.fault("journal", error)
            advice = ""
            if self._advice.waiting:
                advice = self._advice.take(attempt.batch or event.call, last=not attempt.batch)
        if not (advice or learned or attempt.faults):
            return Recorded(outcome)
        return Recorded(outcome, advice, tuple(learned), attempt.faults)

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls. Raises as `fold`."""
        with self._guard.lock:
            charges = self._guard.evaluator.spend(self._state, event.tokens, event.cost)
            self.fold(replace(event, session=self._state.id, charges=charges))

    def fold(self, event: Event) -> None:
        """Take in anything else that happened. `RuntimeError` where the session is over.

        Raises `JournalError` as `Guard.take`, and `StoreError` where a grant cannot be kept.
        """
        guard = self._guard
        with guard.lock:
            if self.closed:
                raise RuntimeError(self._over)
            attempt = self._state.flights.get(event.call) if isinstance(event, Released) else None
            guard.take(event)
            try:
                self._follow_above(event, attempt)
            except (JournalError, StoreError) as error:  # it has happened, and stands in its own
                warn(f"what session {self._state.id!r} drew is not told above: {error}")

    def _follow_above(self, event: Event, released: Attempt | None) -> None:
        """Tell those above what an event means for their budgets."""
        if isinstance(event, Spent):
            self._tell_above(event.charges, event.at)
        elif isinstance(event, Granted):
            raised = paying.raised(self._guard.evaluator, self._state, event)
            self._tell_above((), event.at, () if raised is None else (raised,))
        elif released is not None:
            back = [replace(charge, amount=-charge.amount) for charge in released.charges]
            self._tell_above(back, released.at)

    def _settle_above(self, charges: Iterable[Charge], at: int | None, attempt: Attempt) -> None:
        """The same of a result: what was reserved too much was drawn at admission."""
        self._tell_above([charge for charge in charges if charge.amount > 0], at)
        self._tell_above([charge for charge in charges if charge.amount < 0], attempt.at)

    def _tell_above(
        self,
        charges: Iterable[Charge],
        at: int | None,
        raised: Iterable[Charge] = (),
        told: list[Drawn] | None = None,
    ) -> None:
        """Tell those above what was drawn from their budgets: their own journals say it, too.

        What has been written by then is added to `told`, also where this raises.
        """
        guard, state = self._guard, self._state
        told = [] if told is None else told
        if state.parent is None or guard.teller is None:
            return
        drawn = paying.above(guard.evaluator, state, charges)
        lifted = paying.above(guard.evaluator, state, raised)
        for owner in {**drawn, **lifted}:
            event = Drawn(owner, at, state.id, drawn.get(owner, ()), lifted.get(owner, ()))
            told.append(event)
            try:
                guard.emit(event, False)
            except JournalError:
                told.pop()
                raise

    def end(self, event: Closed) -> None:
        """The session is over, also where that cannot be written down. Raises what that raises."""
        guard = self._guard
        with guard.lock:
            if self.closed:
                return
            self.closed = True
            try:
                guard.world.fold(event)
            finally:
                guard.end(event)

    def leave(self) -> None:
        """The guard is closed: what is reported from now on counts nowhere."""
        self.closed = True
        self._state.flights.clear()

    @property
    def _over(self) -> str:
        """Why nothing more can happen here, and what to do."""
        violation = (answers.LEFT if self._guard.closed else answers.CLOSED).violations[0]
        return f"{violation.text}: {violation.instead}"


def _given_back(drawn: Drawn) -> Drawn:
    """The opposite of what was drawn."""
    back = tuple([replace(charge, amount=-charge.amount) for charge in drawn.charges])
    return replace(drawn, charges=back)
