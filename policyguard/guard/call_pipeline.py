"""A call's way through one session: checked, admitted or refused, completed.

Each step changes the state through the engine's fold and emits its event, under the guard's lock.
Where nobody reads events none is built: `transitions` take what the event would carry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets import charges as paying
from policyguard.evaluator.evaluation import ALLOWED, Evaluation
from policyguard.evaluator.plan import BoundPlan
from policyguard.evaluator.session_state import SessionState
from policyguard.evaluator.transitions import admit as admit_call
from policyguard.evaluator.transitions import complete as complete_call
from policyguard.guard import decisions
from policyguard.guard.host_log import warn
from policyguard.guard.pending_advice import PendingAdvice
from policyguard.guard.shared_budgets import make_repeatable
from policyguard.journal.errors import JournalError
from policyguard.model.decision import Decision, EvalError, Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import (
    Charge,
    ChildCharged,
    Closed,
    Completed,
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


_CALL_ID = re.compile("c([1-9][0-9]{0,14})")


def parse_call_number(call: str) -> int:
    """Which call of its session has this id; 0 for an id that somebody else has given."""
    found = _CALL_ID.fullmatch(call)
    return int(found[1]) if found is not None else 0


class CallPipeline:
    """The calls of one session. `made` is the latest one's number, refused ones included."""

    __slots__ = ("_advice", "_guard", "_last_number", "_state", "closed")

    def __init__(self, guard: Guard, state: SessionState, last_number: int) -> None:
        self._guard = guard
        self._state = state
        self._last_number = last_number
        self._advice = PendingAdvice(guard._evaluator.bounds.in_flight)
        self.closed = False

    def check(self, attempt: Attempt, admit: bool, invalid_reason: str = "") -> Decision:
        """Answer an attempt; with `admit` an allowed one is counted, a refused one noted.

        `unfit` says why its arguments cannot be judged, where that is known.
        """
        guard, state = self._guard, self._state
        world, walk = guard._state, None
        above: list[ChildCharged] | None = None
        with guard._lock:
            if admit:
                if guard._latest_session != state.id:
                    guard._mark_used(state.id)
                self._last_number += 1
                if not attempt.id:
                    attempt.id = f"c{self._last_number}"
            try:
                if self.closed:
                    verdict = decisions.GUARD_CLOSED if guard.closed else decisions.SESSION_CLOSED
                    admit = False  # its journal has ended, or is another's by now
                elif invalid_reason:
                    verdict = decisions.invalid_arguments(
                        attempt, invalid_reason, observe=guard._mode.observe
                    )
                else:
                    keeper = guard._constraint_sync
                    if keeper is not None and monotonic() >= keeper.next_poll:
                        keeper.poll()
                    walk = guard._evaluator.prepare(attempt)
                    learned = (
                        world.check_learned(attempt)
                        if world.constraint_set.constraints or world.has_radius
                        else ()
                    )
                    purser = guard._shared_budgets
                    if purser is None or not purser.covers(walk.plan):
                        verdict = guard._evaluator.evaluate(
                            world.engine_state, attempt, walk, learned, guard._mode
                        )
                    else:
                        judge = partial(self._evaluate, attempt, walk)
                        again = make_repeatable(attempt, walk.plan, learned, judge)
                        verdict = purser.evaluate(attempt, again, admit=admit)
            except ArgumentsError as error:
                verdict = decisions.invalid_arguments(
                    attempt, str(error), observe=guard._mode.observe
                )
            except Exception as error:  # noqa: BLE001 - the policy says what a defect of ours means
                verdict = decisions.internal_error(attempt, error, allow=self._allow_on_error)
            if verdict is ALLOWED and attempt.timeout is None:  # the common case, made short
                own = attempt.exact_fingerprint or attempt.fingerprint
                decision = Decision(attempt.id, state.id, attempt.tool, _ALLOW, True, own)
            else:
                observe = guard._mode.observe
                decision = decisions.build_decision(state.id, verdict, attempt, observe=observe)
            if not admit:
                return decision
            try:
                if not decision.allowed:
                    refused = decisions.build_refused(attempt, decision)
                    world.fold(refused)
                    guard._events.emit(refused)
                elif walk is not None:
                    admit_call(guard._evaluator, world.engine_state, attempt)
                    if guard._has_audience:
                        guard._events.emit_admitted(attempt, decision)
                        if attempt.charges:
                            above = []
                            self._charge_ancestors(attempt.charges, attempt.at, emitted=above)
                    if decision.violations:
                        self._advice.add(attempt.batch or decision.id, decision.message)
            except (JournalError, StoreError) as error:
                return self._handle_write_error(decision, attempt, error, above)
        return decision

    def _evaluate(
        self, attempt: Attempt, walk: BoundPlan, learned: Sequence[Violation]
    ) -> Evaluation:
        guard = self._guard
        return guard._evaluator.evaluate(
            guard._state.engine_state, attempt, walk, learned, guard._mode
        )

    @property
    def _allow_on_error(self) -> bool:
        """Whether what policyguard itself fails on runs."""
        return self._guard._mode.observe or self._guard._evaluator.allow_on_internal_error

    def _handle_write_error(
        self,
        decision: Decision,
        attempt: Attempt,
        error: Exception,
        emitted: list[ChildCharged] | None,
    ) -> Decision:
        """The answer where an event could not be written down: as `on_internal_error` says.

        `above` is what those above have been told, None where the call itself was not.
        """
        fault = EvalError("journal", str(error))
        if decision.allowed and not self._allow_on_error:
            released = Released(self._state.id, attempt.at, decision.id)
            self._guard._state.fold(released)
            if emitted is not None:
                self._journal_reversal([released, *map(_reverse, emitted)])
            elif isinstance(error, StoreError):  # it is written, and not anchored
                self._journal_reversal([released])
            refused = decisions.internal_error(attempt, error, allow=False)
            verdict = replace(refused, errors=(fault,))
            return decisions.build_decision(self._state.id, verdict, attempt, observe=False)
        return replace(decision, errors=(*decision.errors, fault))

    def _journal_reversal(self, events: Iterable[Event]) -> None:
        """What was written of an admission that is none is taken back in the journals, too."""
        for event in events:
            with suppress(JournalError, StoreError):  # the caller hears of the first
                self._guard._events.emit(event)

    def complete(self, event: Completed) -> Recorded:
        """Judge a result and count it; one of a call that is not in flight is only judged."""
        guard = self._guard
        with guard._lock:
            attempt = self._state.in_flight.get(event.call)
            if attempt is None:
                outcome = guard._evaluator.outcome_classifier.classify(event, None, None)
                faults = (EvalError("session/closed", self._closed_reason),) if self.closed else ()
                return Recorded(outcome=outcome, errors=faults, counted=False)
            at = self._state.clamp_time(event.at)
            evaluator, state = guard._evaluator, guard._state
            outcome, charges = evaluator.evaluate_result(attempt, event, at)
            observations = state.observe(attempt, event, outcome)
            engine_state = state.engine_state
            if not observations or guard._constraint_sync is None:
                learned = complete_call(
                    evaluator, engine_state, attempt, event, outcome, charges, observations, at
                )
            else:
                learned = guard._constraint_sync.complete(
                    lambda: complete_call(
                        evaluator, engine_state, attempt, event, outcome, charges, observations, at
                    ),
                    attempt,
                    observations,
                    at,
                )
            if guard._has_audience:
                try:
                    guard._events.emit_completed(
                        event, at, outcome, charges, observations, bool(learned)
                    )
                    if charges:
                        self._settle_ancestors(charges, at, attempt)
                except (JournalError, StoreError) as error:
                    attempt.add_error("journal", error)
            advice = ""
            if self._advice.texts:
                advice = self._advice.take(attempt.batch or event.call, is_last=not attempt.batch)
        if not (advice or learned or attempt.errors):
            return Recorded(outcome)
        return Recorded(outcome, advice, tuple(learned), attempt.errors)

    def spend(self, event: Spent) -> None:
        """Count what the model used between calls. Raises as `fold`."""
        with self._guard._lock:
            charges = self._guard._evaluator.charges_for_spend(
                self._state, event.tokens, event.cost
            )
            self.fold(replace(event, session=self._state.id, charges=charges))

    def fold(self, event: Event) -> None:
        """Take in anything else that happened. `RuntimeError` where the session is over.

        Raises `JournalError` as `Guard.take`, and `StoreError` where a grant cannot be kept.
        """
        guard = self._guard
        with guard._lock:
            if self.closed:
                raise RuntimeError(self._closed_reason)
            attempt = self._state.in_flight.get(event.call) if isinstance(event, Released) else None
            guard._apply(event)
            try:
                self._notify_ancestors(event, attempt)
            except (JournalError, StoreError) as error:  # it has happened, and stands in its own
                warn(f"what session {self._state.id!r} drew is not told above: {error}")

    def _notify_ancestors(self, event: Event, released: Attempt | None) -> None:
        """Tell those above what an event means for their budgets."""
        if isinstance(event, Spent):
            self._charge_ancestors(event.charges, event.at)
        elif isinstance(event, Granted):
            raised = paying.grant_charge(self._guard._evaluator, self._state, event)
            self._charge_ancestors((), event.at, () if raised is None else (raised,))
        elif released is not None:
            back = [replace(charge, amount=-charge.amount) for charge in released.charges]
            self._charge_ancestors(back, released.at)

    def _settle_ancestors(
        self, charges: Iterable[Charge], at: int | None, attempt: Attempt
    ) -> None:
        """The same of a result: what was reserved too much was drawn at admission."""
        self._charge_ancestors([charge for charge in charges if charge.amount > 0], at)
        self._charge_ancestors([charge for charge in charges if charge.amount < 0], attempt.at)

    def _charge_ancestors(
        self,
        charges: Iterable[Charge],
        at: int | None,
        raised_limits: Iterable[Charge] = (),
        emitted: list[ChildCharged] | None = None,
    ) -> None:
        """Tell those above what was drawn from their budgets: their own journals say it, too.

        What has been written by then is added to `told`, also where this raises.
        """
        guard, state = self._guard, self._state
        emitted = [] if emitted is None else emitted
        if state.parent is None or not guard._has_audience:
            return
        drawn = paying.parent_charges(guard._evaluator, state, charges)
        lifted = paying.parent_charges(guard._evaluator, state, raised_limits)
        for owner in {**drawn, **lifted}:
            event = ChildCharged(owner, at, state.id, drawn.get(owner, ()), lifted.get(owner, ()))
            emitted.append(event)
            try:
                guard._events.emit(event)
            except JournalError:
                emitted.pop()
                raise

    def end(self, event: Closed) -> None:
        """The session is over, also where that cannot be written down. Raises what that raises."""
        guard = self._guard
        with guard._lock:
            if self.closed:
                return
            self.closed = True
            try:
                guard._state.fold(event)
            finally:
                guard._end_session(event)

    def detach(self) -> None:
        """The guard is closed: what is reported from now on counts nowhere."""
        self.closed = True
        self._state.in_flight.clear()

    @property
    def _closed_reason(self) -> str:
        """Why nothing more can happen here, and what to do."""
        violation = (
            decisions.GUARD_CLOSED if self._guard.closed else decisions.SESSION_CLOSED
        ).violations[0]
        return f"{violation.text}: {violation.instead}"


def _reverse(drawn: ChildCharged) -> ChildCharged:
    """The opposite of what was drawn."""
    back = tuple([replace(charge, amount=-charge.amount) for charge in drawn.charges])
    return replace(drawn, charges=back)
