"""The time of a guard's events: it starts at the wall clock, and passes as real time does.

A wall clock is set ahead and back. Windows, budgets and pauses go by a timeline instead, which only
advances. `now` in expressions is the wall clock, which events keep where it is not their time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from policyguard.store.protocol import Store

RESOLUTION = 10**9
"""From where on the wall clock and a timeline differ, and how often it is read (ns)."""


def _find_elapsed_clock() -> Callable[[], int]:
    """Return a clock that nobody sets, and that counts while the machine sleeps, if there is one.

    Elsewhere `time.monotonic_ns` does (Windows), or is all there is.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # macOS has only the latter, and it counts
        clock = getattr(time, name, None)
        if clock is not None:
            return partial(time.clock_gettime_ns, clock)
    return time.monotonic_ns


elapsed_time: Callable[[], int] = _find_elapsed_clock()
"""Return the nanoseconds since some moment before the process began."""


class Timeline(Protocol):
    """The time that passes for the sessions of a guard, in nanoseconds since 1970 (UTC)."""

    def read(self) -> tuple[int, int | None]:
        """Return the time, which never runs backwards, and the wall clock's where that differs."""


class SystemTimeline:
    """The time by the system's clocks, alike for all guards of a store in one boot.

    The wall clock is read once a second: at most that long a step goes unnoticed.
    """

    __slots__ = ("_elapsed", "_next_look", "_offset", "_skew", "_wall")

    def __init__(
        self,
        store: Store | None = None,
        *,
        wall: Callable[[], int] = time.time_ns,
        elapsed: Callable[[], int] = elapsed_time,
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        passed = elapsed()
        offset = wall() - passed
        self._offset = offset if store is None else store.anchor_time(offset, passed)
        self._skew = self._next_look = 0

    def read(self) -> tuple[int, int | None]:
        """See `Timeline.read`."""
        at = self._elapsed() + self._offset
        if at >= self._next_look:
            self._next_look = at + RESOLUTION
            skew = self._wall() - at
            self._skew = skew if abs(skew) >= RESOLUTION else 0
        skew = self._skew
        return at, at + skew if skew else None


class HostTimeline:
    """The time by a host's own clock, of which only the steps forward count.

    It cannot tell a clock that is set ahead from time that passes.
    """

    __slots__ = ("_clock", "_last", "_lock", "_now")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = self._now = clock()

    def read(self) -> tuple[int, int | None]:
        """See `Timeline.read`."""
        with self._lock:
            wall = self._clock()
            self._now += max(0, wall - self._last)
            self._last = wall
            return self._now, wall if abs(wall - self._now) >= RESOLUTION else None


class ShiftedTimeline:
    """The time of a session that is ahead of its guard's."""

    __slots__ = ("_shift", "_timeline")

    def __init__(self, timeline: Timeline, shift: int) -> None:
        self._timeline = timeline
        self._shift = shift

    def read(self) -> tuple[int, int | None]:
        """See `Timeline.read`."""
        at, wall = self._timeline.read()
        shifted = at + self._shift
        wall = at if wall is None else wall
        return shifted, wall if abs(wall - shifted) >= RESOLUTION else None


def open_timeline(clock: Callable[[], int], store: Store | None) -> Timeline:
    """Return the time of a guard with this wall clock."""
    return SystemTimeline(store) if clock is time.time_ns else HostTimeline(clock)


def continue_from(timeline: Timeline, latest: int | None) -> Timeline:
    """Return a timeline that is not before `latest` (ns), such as a session's latest event."""
    shift = 0 if latest is None else latest - timeline.read()[0]
    return ShiftedTimeline(timeline, shift) if shift > 0 else timeline
