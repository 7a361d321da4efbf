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
from policyguard.evaluator.budgets.charges import grant_charge, parent_charges
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
    """Return a call's number in its session; 0 for an id that the host chose."""
    match = _CALL_ID.fullmatch(call)
    return int(match[1]) if match is not None else 0


class CallPipeline:
    """The calls of one session; `last_number` numbers the latest, refused ones included."""

    __slots__ = ("_advice", "_guard", "_last_number", "_state", "closed")

    def __init__(self, guard: Guard, state: SessionState, last_number: int) -> None:
        self._guard = guard
        self._state = state
        self._last_number = last_number
        self._advice = PendingAdvice(guard._evaluator.bounds.in_flight)
        self.closed = False

    def check(self, attempt: Attempt, admit: bool, invalid_reason: str = "") -> Decision:
        """Evaluate an attempt; with `admit` also count it as admitted or refused.

        `invalid_reason` says why its arguments cannot be evaluated, where that is known.
        """
        guard, state = self._guard, self._state
        guard_state, bound_plan = guard._state, None
        emitted: list[ChildCharged] | None = None
        with guard._lock:
            if admit:
                if guard._latest_session != state.id:
                    guard._mark_used(state.id)
                self._last_number += 1
                if not attempt.id:
                    attempt.id = f"c{self._last_number}"
            try:
                if self.closed:
                    evaluation = (
                        decisions.GUARD_CLOSED if guard.closed else decisions.SESSION_CLOSED
                    )
                    admit = False  # its journal has ended, or belongs to another guard
                elif invalid_reason:
                    evaluation = decisions.invalid_arguments(
                        attempt, invalid_reason, observe=guard._mode.observe
                    )
                else:
                    sync = guard._constraint_sync
                    if sync is not None and monotonic() >= sync.next_poll:
                        sync.poll()
                    bound_plan = guard._evaluator.prepare(attempt)
                    learned = (
                        guard_state.check_learned(attempt)
                        if guard_state.constraint_set.constraints or guard_state.has_radius
                        else ()
                    )
                    shared_budgets = guard._shared_budgets
                    if shared_budgets is None or not shared_budgets.covers(bound_plan.plan):
                        evaluation = guard._evaluator.evaluate(
                            guard_state.engine_state, attempt, bound_plan, learned, guard._mode
                        )
                    else:
                        evaluate = partial(self._evaluate, attempt, bound_plan)
                        reevaluate = make_repeatable(attempt, bound_plan.plan, learned, evaluate)
                        evaluation = shared_budgets.evaluate(attempt, reevaluate, admit=admit)
            except ArgumentsError as error:
                evaluation = decisions.invalid_arguments(
                    attempt, str(error), observe=guard._mode.observe
                )
            except Exception as error:  # noqa: BLE001 - `on_internal_error` decides
                evaluation = decisions.internal_error(attempt, error, allow=self._allow_on_error)
            if evaluation is ALLOWED and attempt.timeout is None:  # the common case
                own = attempt.exact_fingerprint or attempt.fingerprint
                decision = Decision(attempt.id, state.id, attempt.tool, _ALLOW, True, own)
            else:
                observe = guard._mode.observe
                decision = decisions.build_decision(state.id, evaluation, attempt, observe=observe)
            if not admit:
                return decision
            try:
                if not decision.allowed:
                    refused = decisions.build_refused(attempt, decision)
                    guard_state.fold(refused)
                    guard._events.emit(refused)
                elif bound_plan is not None:
                    admit_call(guard._evaluator, guard_state.engine_state, attempt)
                    if guard._has_audience:
                        guard._events.emit_admitted(attempt, decision)
                        if attempt.charges:
                            emitted = []
                            self._charge_ancestors(attempt.charges, attempt.at, emitted=emitted)
                    if decision.violations:
                        self._advice.add(attempt.batch or decision.id, decision.message)
            except (JournalError, StoreError) as error:
                return self._handle_write_error(decision, attempt, error, emitted)
        return decision

    def _evaluate(
        self, attempt: Attempt, bound_plan: BoundPlan, learned: Sequence[Violation]
    ) -> Evaluation:
        guard = self._guard
        return guard._evaluator.evaluate(
            guard._state.engine_state, attempt, bound_plan, learned, guard._mode
        )

    @property
    def _allow_on_error(self) -> bool:
        """Whether calls run that policyguard itself fails on."""
        return self._guard._mode.observe or self._guard._evaluator.allow_on_internal_error

    def _handle_write_error(
        self,
        decision: Decision,
        attempt: Attempt,
        error: Exception,
        emitted: list[ChildCharged] | None,
    ) -> Decision:
        """Decide on a call whose event could not be written, as `on_internal_error` says.

        `emitted` are the events that ancestors got; None if the call's own was not written.
        """
        eval_error = EvalError("journal", str(error))
        if decision.allowed and not self._allow_on_error:
            released = Released(self._state.id, attempt.at, decision.id)
            self._guard._state.fold(released)
            if emitted is not None:
                self._journal_reversal([released, *map(_reverse, emitted)])
            elif isinstance(error, StoreError):  # written, but not anchored
                self._journal_reversal([released])
            refused = decisions.internal_error(attempt, error, allow=False)
            evaluation = replace(refused, errors=(eval_error,))
            return decisions.build_decision(self._state.id, evaluation, attempt, observe=False)
        return replace(decision, errors=(*decision.errors, eval_error))

    def _journal_reversal(self, events: Iterable[Event]) -> None:
        """Take back in the journals what was written of an admission."""
        for event in events:
            with suppress(JournalError, StoreError):  # the caller gets the first error
                self._guard._events.emit(event)

    def complete(self, event: Completed) -> Recorded:
        """Classify a result and count it, unless its call is not in flight."""
        guard = self._guard
        with guard._lock:
            attempt = self._state.in_flight.get(event.call)
            if attempt is None:
                outcome = guard._evaluator.outcome_classifier.classify(event, None, None)
                errors = (EvalError("session/closed", self._closed_reason),) if self.closed else ()
                return Recorded(outcome=outcome, errors=errors, counted=False)
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
        """Apply any other event. `RuntimeError` where the session is over.

        Raises `JournalError` as `Guard._apply`, and `StoreError` where a grant cannot be written.
        """
        guard = self._guard
        with guard._lock:
            if self.closed:
                raise RuntimeError(self._closed_reason)
            attempt = self._state.in_flight.get(event.call) if isinstance(event, Released) else None
            guard._apply(event)
            try:
                self._notify_ancestors(event, attempt)
            except (JournalError, StoreError) as error:  # its own journal has it
                session = self._state.id
                warn(f"the ancestors' journals lack charges of session {session!r}: {error}")

    def _notify_ancestors(self, event: Event, released: Attempt | None) -> None:
        """Emit what an event charges to ancestors."""
        if isinstance(event, Spent):
            self._charge_ancestors(event.charges, event.at)
        elif isinstance(event, Granted):
            charge = grant_charge(self._guard._evaluator, self._state, event)
            self._charge_ancestors((), event.at, () if charge is None else (charge,))
        elif released is not None:
            refunds = [replace(charge, amount=-charge.amount) for charge in released.charges]
            self._charge_ancestors(refunds, released.at)

    def _settle_ancestors(
        self, charges: Iterable[Charge], at: int | None, attempt: Attempt
    ) -> None:
        """Emit what a result charges to ancestors; refunds are as of the admission."""
        self._charge_ancestors([charge for charge in charges if charge.amount > 0], at)
        self._charge_ancestors([charge for charge in charges if charge.amount < 0], attempt.at)

    def _charge_ancestors(
        self,
        charges: Iterable[Charge],
        at: int | None,
        raised_limits: Iterable[Charge] = (),
        emitted: list[ChildCharged] | None = None,
    ) -> None:
        """Emit charges to ancestors, since their own journals must hold them too.

        `emitted` gets each event that was written, even if this raises later.
        """
        guard, state = self._guard, self._state
        emitted = [] if emitted is None else emitted
        if state.parent is None or not guard._has_audience:
            return
        charged = parent_charges(guard._evaluator, state, charges)
        raised = parent_charges(guard._evaluator, state, raised_limits)
        for owner in {**charged, **raised}:
            event = ChildCharged(owner, at, state.id, charged.get(owner, ()), raised.get(owner, ()))
            emitted.append(event)
            try:
                guard._events.emit(event)
            except JournalError:
                emitted.pop()
                raise

    def end(self, event: Closed) -> None:
        """End the session, even if that cannot be written. Raises what writing raises."""
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
        """Stop counting: the guard is closed, or lets go of the session."""
        self.closed = True
        self._state.in_flight.clear()

    @property
    def _closed_reason(self) -> str:
        """Why the session accepts nothing more, and what to do."""
        violation = (
            decisions.GUARD_CLOSED if self._guard.closed else decisions.SESSION_CLOSED
        ).violations[0]
        return f"{violation.text}: {violation.instead}"


def _reverse(event: ChildCharged) -> ChildCharged:
    """Return the refund of what an event charged."""
    refunds = tuple([replace(charge, amount=-charge.amount) for charge in event.charges])
    return replace(event, charges=refunds)
