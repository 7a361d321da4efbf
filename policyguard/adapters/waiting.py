"""Requests that wait for a person's answer to a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from policyguard.guard.guard import Guard
from policyguard.model.event import Approved, Denied, Event

MAX_SECONDS = 3600.0


class StillWaiting(Exception):  # noqa: N818 - a state, not an error
    """The time is over in which a request may wait; it is to be sent again."""


class Hold(NamedTuple):
    """How long a request may wait for an answer: `until`, on the monotonic clock.

    `is_repeated`: it was sent before, and its call is not counted again while that waits.
    `is_last`: it will not be sent again, so it gets the decision as it is then.
    """

    until: float
    is_repeated: bool = False
    is_last: bool = True


_hold: ContextVar[Hold | None] = ContextVar("policyguard_hold", default=None)


@contextmanager
def holding(seconds: float, *, is_repeated: bool = False, is_last: bool = True) -> Iterator[None]:
    """Let checks within the block wait for people's answers."""
    until = time.monotonic() + min(seconds, MAX_SECONDS)
    token = _hold.set(Hold(until, is_repeated, is_last))
    try:
        yield
    finally:
        _hold.reset(token)


def current_hold() -> Hold | None:
    """Return how long the request of this thread may wait; None: not at all."""
    return _hold.get()


class Answers:
    """Wakes the threads that wait for an answer in a session."""

    def __init__(self, guard: Guard) -> None:
        self._changed = threading.Condition()
        self._counts: dict[str, int] = {}
        self._ended = False
        guard.on(self._note, Approved, Denied)

    def _note(self, event: Event) -> None:
        with self._changed:
            self._counts[event.session] = self._counts.get(event.session, 0) + 1
            self._changed.notify_all()

    def count(self, session: str) -> int:
        """Return how many answers a session has had here."""
        with self._changed:
            return self._counts.get(session, 0)

    def wait(self, session: str, seen: int, until: float) -> bool:
        """Wait for more than `seen` answers; False if there are none in time, or at the end."""
        with self._changed:
            while self._counts.get(session, 0) == seen and not self._ended:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return not self._ended

    def end(self) -> None:
        """Wake all: nothing waits any longer."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
