"""Replay: recorded events through the code that handles live calls, at their own time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.exceptions import ExceptionSet
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.transitions import attempt_from_event
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.guard.sessions.opening import start_session
from policyguard.learned.constraint_set import ConstraintSet
from policyguard.model.constraint import Constraint
from policyguard.model.decision import Decision
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import (
    Admitted,
    ChildCharged,
    Completed,
    Event,
    Marked,
    Refused,
    SessionEnded,
    SessionStarted,
    Spent,
)
from policyguard.model.outcome import Recorded

_CEL_FIELDS = ("turn", "calls", "failures", "tokens", "cost", "depth", "children", "progress")


class ReplayGuard(Guard):
    """A guard for recorded events and policy tests: it stores nothing and has no approver.

    In a replay the clock stands still, because all times are those of the events. It learns into
    `constraint_set`; if others do, too, it reports each success that may concern what they learn.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        *,
        observe: bool = False,
        clock: Callable[[], int] = lambda: 0,
        constraint_set: ConstraintSet | None = None,
        others_learn: bool = False,
    ) -> None:
        super().__init__(compiled, observe=observe, clock=clock)
        if constraint_set is not None:
            self._state.constraint_set = constraint_set
        if others_learn:
            self._state.learner.use_shared_store()
        self._mode = msgspec.structs.replace(self._mode, approver_presence="never")

    @property
    def observe(self) -> bool:
        """Whether the policy is only observed: it refuses nothing."""
        return self._mode.observe

    def start_session(self, event: SessionStarted) -> ReplaySession:
        """Open a session as an event describes it.

        An agent, user or project that the event does not name is the session's own.
        """
        return ReplaySession(start_session(self, event, isolated=True))

    @property
    def exceptions(self) -> ExceptionSet | None:
        """The exceptions of the policy; None if it has none."""
        return self._evaluator.exceptions

    def find_constraint(self, id: str) -> Constraint | None:  # noqa: A002 - the constraint's own word
        """Return a learned constraint, None if there is none of this id."""
        return self._state.constraint_set.get(id)

    def inspect(self, session: str) -> dict[str, Any]:
        """Return the state of a session by field, times in nanoseconds; empty if it is closed."""
        with self._lock:
            state = self._state.evaluator_state.sessions.get(session)
            opened = self._open_sessions.get(session)
            if state is None or opened is None:
                return {}
            started, now = state.started_at, max(self._steady_clock.read()[0], state.now or 0)
            return {
                **{name: state.cel_session.get(name) for name in _CEL_FIELDS},
                # The expressions' own `running` is updated only when a call is evaluated.
                "running": len(state.in_flight),
                "elapsed": now - started if started is not None else 0,
                "halted": bool(state.halted_by()),
                "disabled": sorted(opened.disabled),
                "marks": state.marks.list_set(state, now) if state.marks is not None else [],
            }


def _is_of_child(event: Event) -> bool:
    """Whether the calls of a sub-agent do the same in a replay."""
    return isinstance(event, ChildCharged) or (isinstance(event, Marked) and event.child != "")


class ReplaySession:
    """A session whose events come from a recording."""

    __slots__ = ("_pipeline", "_session", "_state", "id")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pipeline = session._pipeline
        self._state = session._state
        self.id = session.id

    @property
    def closed(self) -> bool:
        """Whether it is over; a guard also closes the least recently used session for another."""
        return self._pipeline.closed

    def check(self, event: Admitted | Refused) -> Decision:
        """Evaluate a recorded call and admit or refuse it. The decision has the call's id."""
        return self._pipeline.check(attempt_from_event(self._state, event, event.at), True)

    def preview(self, event: Admitted | Refused) -> Decision:
        """Evaluate a recorded call without counting it."""
        return self._pipeline.check(attempt_from_event(self._state, event, event.at), False)

    def admit(self, event: Admitted | Refused, *, state_changing: bool) -> None:
        """Count a recorded call as run, whatever the policy says.

        With `state_changing` it counts as a change of state, whatever its class.
        """
        attempt = attempt_from_event(self._state, event, event.at)
        observe = msgspec.structs.replace(self._session.guard._mode, observe=True)
        self._pipeline.check(attempt, True, mode=observe)
        if state_changing:
            attempt.state_changing = True

    def record(self, event: Completed) -> Recorded:
        """Record the result of a call; that of a refused call counts nowhere."""
        if event.fired:  # by the rules of the policy that it was recorded under
            event = msgspec.structs.replace(event, fired=(), edited=False, halted_by="")
        return self._pipeline.complete(event)

    def apply(self, event: Event) -> Decision | Recorded | None:
        """Apply any recorded event. A closed session takes calls and results only."""
        match event:
            case Admitted() | Refused():
                return self.check(event)
            case Completed():
                return self.record(event)
            case Spent() if not self.closed:
                self._pipeline.spend(event)
            case SessionEnded():
                self._pipeline.end(event)
            case _ if not (self.closed or _is_of_child(event)):
                self._pipeline.fold(event)
        return None

    def can_fire(self, event: Admitted | Refused, plans: Iterable[Plan]) -> bool:
        """Return whether a limit or constraint could fire on a call if no state had changed.

        `plans` are those the call may have. False is certain: the call was not made before, and
        there was no failure or refusal that still counts.
        """
        state, guard = self._state, self._session.guard
        if self.closed or not state.on_fast_path or state.open_streaks or state.offered is not None:
            return True
        evaluator, args = guard._evaluator, event.args or {}
        try:
            fingerprint, loose_fingerprint, _ = evaluator.identify(event.tool, event.server, args)
        except ArgumentsError:
            return True
        find = evaluator.find_likeness
        likeness = find(event.tool, event.server, args, fingerprint) if find else fingerprint
        attempt = Attempt(event.tool, args, event.at, state, fingerprint=fingerprint)
        bound = [state.bind_plan(plan) for plan in plans]
        learned = guard._state.learner
        return bool(
            loose_fingerprint  # tolerant numbers make the call equal to another
            or any(plan.must_evaluate for plan in bound)
            or any(likeness in calls for plan in bound for calls in plan.watched)
            or not learned.has_no_evidence_on(guard._state.constraint_set, attempt)
        )
