"""The way of a call through one session: judged, admitted or refused, completed.

Each step turns what happened into an event, folds it, and writes it down, under the guard's lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Request, Verdict
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import SessionState
from policyguard.guard import answers
from policyguard.guard.advice import Advice
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision, Fault
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import Completed, Event, Released, Spent
from policyguard.model.outcome import Recorded
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


class Calls:
    """The calls of one session. `made` is how many there have been, refused ones included."""

    def __init__(self, guard: Guard, state: SessionState, made: int) -> None:
        self._guard = guard
        self._state = state
        self._made = made
        self._advice = Advice(guard.evaluator.bounds.in_flight)
        self.closed = False

    def judge(self, request: Request, at: int | None, *, admit: bool, call: str = "") -> Decision:
        """Answer an attempt; with `admit` an allowed one is counted, a refused one noted."""
        guard, evaluator = self._guard, self._guard.evaluator
        attempt: Attempt | None = None
        plan: Plan | None = None
        with guard.lock:
            if admit:
                guard.touch(self._state.id)
                self._made += 1
                call = call or f"c{self._made}"
            try:
                if self.closed:
                    verdict = answers.CLOSED
                else:
                    if guard.keeper is not None:
                        guard.keeper.look()
                    attempt, plan, view = evaluator.prepare(self._state, request, at)
                    learned = guard.world.judge(self._state, attempt, view)
                    verdict = evaluator.judge(
                        guard.world.state,
                        self._state,
                        attempt,
                        plan,
                        view,
                        learned,
                        observe=guard.observe,
                        attendance=guard.attendance,
                    )
            except ArgumentsError as error:
                verdict = answers.unfit(str(error))
            except Exception as error:  # noqa: BLE001 - the policy says what a defect of ours means
                verdict = answers.broken(error, allow=evaluator.allow_on_internal_error)
            decision = answers.decision(self._state.id, request.tool, call, verdict, attempt)
            if admit:
                try:
                    self._settle(decision, request, attempt, plan, at)
                except (JournalError, StoreError) as error:
                    return self._unwritten(decision, error)
        return decision

    def _settle(
        self,
        decision: Decision,
        request: Request,
        attempt: Attempt | None,
        plan: Plan | None,
        at: int | None,
    ) -> None:
        """Count an admitted call, note a refused one."""
        guard = self._guard
        if not decision.allowed:
            refused = answers.refused(decision, request, attempt, at)
            guard.world.refuse(self._state, refused)
            guard.emit(refused)
        elif attempt is not None and plan is not None:
            attempt.id = decision.id
            admitted = answers.admitted(self._state.id, attempt, decision)
            guard.world.admit(self._state, admitted, attempt, plan)
            guard.emit(admitted)
            if decision.violations:
                self._advice.give(attempt.batch or decision.id, decision.message)

    def _unwritten(self, decision: Decision, error: Exception) -> Decision:
        """The answer where an event could not be written down: as `on_internal_error` says."""
        fault = Fault("journal", str(error))
        if decision.allowed and not self._guard.evaluator.allow_on_internal_error:
            self._guard.world.fold(Released(session=self._state.id, call=decision.id))
            verdict: Verdict = answers.broken(error, allow=False)._replace(faults=(fault,))
            refused = answers.decision(self._state.id, decision.tool, decision.id, verdict, None)
            return msgspec.structs.replace(refused, fingerprint=decision.fingerprint)
        return msgspec.structs.replace(decision, errors=(*decision.errors, fault))

    def complete(self, event: Completed) -> Recorded:
        """Judge a result and count it; one of a call that is not in flight is only judged."""
        guard, evaluator = self._guard, self._guard.evaluator
        with guard.lock:
            flight = self._state.flights.get(event.call)
            if flight is None:
                outcome = evaluator.observer.observe(event, None, None, [])
                return Recorded(outcome=outcome, counted=False)
            attempt = flight.attempt
            last = self._state.results.get(attempt.fingerprint)
            outcome, charges, view, faults = evaluator.settle(self._state, attempt, event, last)
            lessons = guard.world.lessons(self._state, attempt, view, event, outcome, faults)
            at = self._state.clamp(event.at)
            folded = answers.completed(event, at, outcome, charges, lessons)
            fold = partial(guard.world.complete, self._state, folded, flight, outcome)
            keeper = guard.keeper
            learned = fold() if keeper is None else keeper.complete(fold, folded, faults)
            try:
                guard.emit(folded)
            except (JournalError, StoreError) as error:
                faults.append(Fault("journal", str(error)))
            advice = self._advice.take(attempt.batch or event.call, last=not attempt.batch)
        return Recorded(
            outcome=outcome, advice=advice, learned=tuple(learned), errors=tuple(faults)
        )

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls."""
        with self._guard.lock:
            charges = self._guard.evaluator.spend(self._state, event.tokens, event.cost)
            self.fold(msgspec.structs.replace(event, session=self._state.id, charges=charges))

    def fold(self, event: Event) -> None:
        """Take in anything else that happened."""
        guard = self._guard
        with guard.lock:
            guard.world.fold(event)
            guard.emit(event)
