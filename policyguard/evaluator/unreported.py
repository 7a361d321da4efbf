"""Calls without a result: given up as unreported, or abandoned with their session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.charges import free_slots, free_timed_out_slots, holds_slot
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.session_state import SessionState


def reclaim_calls(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, at: int | None
) -> None:
    """Give up a call in flight that was not reported in time, and one where there are too many.

    It stays charged; only its slots are freed, and a late result counts. Of too many, one without a
    slot goes first: it may still run. A call that the guard runs itself is never given up.
    """
    expire_calls(evaluator, state, session, at)
    max_calls = evaluator.bounds.in_flight
    if len(session.timed_out) >= max_calls:
        ended = next(_not_held(session.timed_out), None)
        if ended is not None:
            free_timed_out_slots(evaluator, state, session.timed_out.pop(ended.id))
    if len(session.in_flight) >= max_calls:
        calls = _not_held(session.in_flight)
        slotless = (attempt for attempt in calls if not holds_slot(evaluator, attempt))
        given_up = next(slotless, None) or next(_not_held(session.in_flight), None)
        if given_up is not None:
            _give_up(evaluator, state, given_up, at)


def expire_calls(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, at: int | None
) -> None:
    """Drop the oldest timed-out and give up the oldest unreported call if they are overdue."""
    if at is None:
        return
    due = at - evaluator.bounds.unreported
    for calls in (session.timed_out, session.in_flight):
        oldest = next(_not_held(calls), None)
        if oldest is not None and oldest.at is not None and oldest.at < due:
            if calls is session.in_flight:
                _give_up(evaluator, state, oldest, at)
            else:
                free_timed_out_slots(evaluator, state, calls.pop(oldest.id))


def _not_held(calls: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """Yield the calls that the guard does not run itself, the oldest first."""
    return (attempt for attempt in calls.values() if not attempt.is_held)


def _give_up(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt, at: int | None) -> None:
    """Take a call for unreported. As many are kept whole as may be in flight."""
    session = attempt.session
    del session.in_flight[attempt.id]
    _abandon(evaluator, state, attempt, at)
    given_up = session.given_up
    given_up[attempt.id] = attempt
    bounds, reduced = evaluator.bounds, session.reduced
    if len(given_up) > bounds.in_flight:
        oldest = given_up.pop(next(iter(given_up)))
        oldest.reduce()
        reduced[oldest.id] = oldest
    if len(given_up) + len(reduced) > bounds.given_up:
        kept = reduced or given_up
        del kept[next(iter(kept))]
        session.has_forgotten_calls = True


def _abandon(evaluator: Evaluator, state: EvaluatorState, attempt: Attempt, at: int | None) -> None:
    free_slots(evaluator, state, attempt)
    attempt.is_given_up = True
    state.hooks.on_abandoned(attempt, at)


def abandon_calls(
    evaluator: Evaluator, state: EvaluatorState, session: SessionState, at: int | None
) -> None:
    """Drop all calls of a session, and free their slots."""
    for attempt in session.in_flight.values():
        _abandon(evaluator, state, attempt, at)
    for attempt in session.timed_out.values():
        free_timed_out_slots(evaluator, state, attempt)
    session.in_flight.clear()
    session.timed_out.clear()
    session.given_up.clear()
    session.reduced.clear()
