"""The calls that a session knows: those in flight, and those since it was opened."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NoReturn

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluation import Evaluation
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.calls import decisions
from policyguard.guard.calls.ids import parse_call_number
from policyguard.guard.calls.result_editing import build_recorded, edit_uncounted
from policyguard.model.decision import Decision, EvalError
from policyguard.model.errors import UnknownCallError
from policyguard.model.event import Completed, SessionEnded
from policyguard.model.outcome import Recorded

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.tools.results import ToolResult


class KnownCalls:
    """The calls of one session, until it is closed.

    Calls are numbered, refused ones included: those since the session was opened come after
    `first_number`, the latest has `last_number`. `entered` counts the `with` blocks it is used in.
    A session that is `closed` refuses all calls, and has `ended` if its run is over.
    """

    def __init__(self, guard: Guard, state: SessionState, first_number: int) -> None:
        self._guard = guard
        self._state = state
        self._first_number = self.last_number = first_number
        self._suspended: dict[str, Attempt] = {}
        self.closed = self.ended = False
        self.entered = 0

    def resolve_host_call(self, host_call: str, *, in_flight_only: bool = False) -> str | None:
        """Return the own id of the call that has this id of the host's.

        Without `in_flight_only` also of one that a closed session has in flight or that was given
        up as unreported.
        """
        if not host_call:
            return None
        state = self._state
        with self._guard._lock:
            for one in state.in_flight.values():
                if one.host_call == host_call:
                    return one.id
            if in_flight_only:
                return None
            unreported = reversed(state.given_up.values()), reversed(state.reduced.values())
            earlier = chain(self._suspended.values(), *unreported)
            return next((one.id for one in earlier if one.host_call == host_call), None)

    def record_uncounted(self, event: Completed, parsed: ToolResult | None) -> Recorded:
        """Return the answer to the result of a call that is not in flight. It counts nowhere."""
        guard = self._guard
        edited = edit_uncounted(
            guard._evaluator, self._state, event, parsed, observe=guard._mode.observe
        )
        errors: tuple[EvalError, ...] = ()
        if self.closed:
            errors = (EvalError("session/closed", self.closed_reason),)
        elif self._state.has_forgotten_calls:
            errors = (decisions.FORGOTTEN_CALL,)
        return build_recorded(edited.outcome, edited, parsed, "", (), errors, counted=False)

    def hold(self, call: str) -> Attempt | None:
        """Note that the guard runs a call: it is not taken for unreported meanwhile.

        This is done on event loops, so without the guard's lock: its holder may wait for a disk.
        """
        attempt = self._state.in_flight.get(call)
        if attempt is not None:
            attempt.is_held = True
        return attempt

    def require_known(self, id_: str) -> None:
        """Raise `UnknownCallError` unless this is a call of the session since it was opened.

        Calls in flight from before are known too.
        """
        number = parse_call_number(id_)
        with self._guard._lock:
            first, last = self._first_number, self.last_number
            is_unreported = id_ in self._suspended or self._state.find_unreported(id_) is not None
            if is_unreported or first < number <= last:
                return
        if not id_:
            reason = "`preview` admits nothing: report decisions of `check`"
        elif self.closed:
            reason = self.closed_reason
        elif 0 < number <= first:
            reason = "it was reported before the session was opened, or is of an earlier run"
        else:
            reason = "it has been reported, or was never admitted"
        raise UnknownCallError(f"no call `{id_}` in session `{self._state.id}`: {reason}")

    def _refuse_other(self, decision: Decision) -> NoReturn:
        """Raise `UnknownCallError` for a decision on another call with this id and session."""
        raise UnknownCallError(
            f"call `{decision.id}` in session `{decision.session}` is another call: this "
            "decision was made by another guard; report it there"
        )

    def suspend(self) -> None:
        """Refuse all calls until `resume`, and count no results."""
        self.closed = True
        self._suspended, self._state.in_flight = self._state.in_flight, {}

    def resume(self) -> None:
        """Go on after `suspend`."""
        if self.closed:
            self.closed = False
            self._suspended, self._state.in_flight = {}, self._suspended

    def detach(self) -> None:
        """Refuse all calls from now on: the state goes on elsewhere, results no longer count."""
        self.closed = True
        self._state.in_flight.clear()

    def end(self, event: SessionEnded) -> None:
        """End the session, even if that cannot be written. Raises what writing it raises."""
        guard = self._guard
        with guard._lock:
            if self.ended:
                return
            self.resume()
            self.closed = self.ended = True
            try:
                guard._state.fold(event)
            finally:
                guard._end_session(event)

    @property
    def _closed_evaluation(self) -> Evaluation:
        if self.ended:
            return decisions.SESSION_ENDED
        return decisions.GUARD_CLOSED if self._guard.closed else decisions.SESSION_CLOSED

    @property
    def closed_reason(self) -> str:
        """Why nothing more can happen here, and what to do."""
        return self._closed_evaluation.errors[0].error
