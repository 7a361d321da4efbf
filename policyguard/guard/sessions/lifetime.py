"""Opens, closes, resumes and ends a session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Self, TypedDict

from policyguard.evaluator.session_state import SessionState
from policyguard.guard import validate
from policyguard.guard.calls.pipeline import CallPipeline
from policyguard.guard.clock import RESOLUTION, continue_from
from policyguard.guard.event_loop import run_blocking
from policyguard.model.errors import ClosedError
from policyguard.model.event import SessionEnded

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


class Times(TypedDict):
    """The times of an event."""

    at: int
    wall: int | None


active_sessions: ContextVar[tuple[SessionLifetime, ...]] = ContextVar(
    "policyguard_sessions", default=()
)
"""The sessions of the surrounding `with guard.session(...):` blocks, innermost last."""


class SessionLifetime:
    """The part of `Session` that opens, closes, resumes and ends it."""

    __slots__ = ("__weakref__", "_opening", "_pipeline", "_state", "guard", "id")
    _opening: Callable[[], SessionLifetime]  # of a `DeferredSession`

    def __init__(self, guard: Guard, state: SessionState, first_number: int = 0) -> None:
        self.guard = guard
        self.id = state.id
        self._state = state
        self._pipeline = CallPipeline(guard, state, first_number)

    def __repr__(self) -> str:
        state = " ended" if self._pipeline.ended else " closed" if self.closed else ""
        return f"<Session {self.id!r} calls={self._pipeline.last_number}{state}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed or ended: it refuses all calls."""
        return self._pipeline.closed

    @property
    def in_flight(self) -> dict[str, str]:
        """The calls that were admitted and not reported yet, with their fingerprints.

        By the host's id of each (`call=` of `check`), or by its decision's. A fingerprint is that
        of the call's decision.
        """
        with self.guard._lock:
            return {
                call.host_call or call.id: call.approval_fingerprint
                for call in self._state.in_flight.values()
            }

    def close(self) -> None:
        """Close the session: its run may be resumed, here or in another process.

        Calls in flight may be reported when the session is open again. Sub-agents' sessions are
        closed first. Raises `JournalError` or `StoreError` if something cannot be written; the
        session is closed all the same.
        """
        with self.guard._lock, ExitStack() as exit_stack:
            if self.closed:
                return
            exit_stack.callback(self.guard._close_session, self)
            for child in self.guard._open_sessions.children_of(self.id):
                exit_stack.callback(child.close)

    def end(self) -> None:
        """End the run: the session's own counts are forgotten.

        A closed session is resumed for that; ending twice does nothing. Sub-agents' sessions are
        ended first. Raises `JournalError` or `StoreError` if something cannot be written; the
        session is over all the same. `ClosedError` if the guard is closed.
        """
        self._reopen_for_end()  # without the guard's lock, since it may take long
        with self.guard._lock, ExitStack() as exit_stack:
            if self._pipeline.ended:
                return
            self._reopen_for_end()
            exit_stack.callback(self._pipeline.end, SessionEnded(session=self.id, **self._times()))
            for child in self.guard._open_sessions.children_of(self.id):
                exit_stack.callback(child.end)

    def _reopen_for_end(self) -> None:
        is_here = self.guard._open_sessions.get(self.id) is self
        if not self._pipeline.ended and self.closed and not is_here:
            self._reopen()

    def _detach(self) -> None:
        self._pipeline.detach()

    def _reopen(self) -> None:
        """Resume a closed session. `ClosedError` if its run is over or the guard is closed."""
        from policyguard.guard.sessions.opening import resume_session

        found = None if self._pipeline.ended else resume_session(self.guard, self)
        if found is None:
            raise ClosedError(self._pipeline.closed_reason)
        self._state, self._pipeline = found._state, found._pipeline

    def __enter__(self) -> Self:
        """Make this the session of `@guard.tool`; a closed one is resumed."""
        self._enter()
        active_sessions.set((*active_sessions.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session, unless another block still uses it."""
        _exit_session(self)
        self._leave()

    async def __aenter__(self) -> Self:
        await run_blocking(self.guard, self._enter, lambda _: self._leave())
        active_sessions.set((*active_sessions.get(), self))
        return self

    async def __aexit__(self, *_: object) -> None:
        _exit_session(self)
        await run_blocking(self.guard, self._leave)
        await self.guard._listeners.drain()

    def _enter(self) -> None:
        if self._pipeline.closed:  # without the guard's lock, since it may take long
            self._reopen()
        with self.guard._lock:
            if self.closed:
                self._reopen()
            self._pipeline.entered += 1

    def _leave(self) -> None:
        with self.guard._lock:
            self._pipeline.entered -= 1
            if self._pipeline.entered <= 0:
                self.close()

    def _times(self) -> Times:
        """Return the times of an event that happens now."""
        at, wall = self._pipeline.steady_clock.read()
        return Times(at=at, wall=wall)

    def _read_times(
        self, at: int | datetime | None, *, go_on: bool = True
    ) -> tuple[int, int | None]:
        """Return the time of an event and the wall clock's: both are what the host gives, if so.

        With `go_on` the session's time goes on from there.
        """
        pipeline = self._pipeline
        if at is None:
            return pipeline.steady_clock.read()
        given = validate.timestamp("at", at)
        if go_on and given - pipeline.steady_clock.read()[0] >= RESOLUTION:
            pipeline.steady_clock = continue_from(self.guard._steady_clock, given)
        return given, given


def _exit_session(session: SessionLifetime) -> None:
    """Remove the innermost `with` block of a session. Blocks may end in any order."""
    inner: list[SessionLifetime] = []
    outer = [*active_sessions.get()]
    while outer and (last := outer.pop()) is not session:
        inner.insert(0, last)
    active_sessions.set((*outer, *inner))
