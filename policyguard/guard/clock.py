"""The time of a guard's events: it starts at the wall clock, and passes as real time does.

A wall clock is set ahead and back. Windows, budgets and pauses go by a steady clock instead, which
only advances. `now` in expressions is the wall clock, which events keep where it is not their time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policyguard.store.protocol import Store

RESOLUTION = 10**9
"""From where on the wall clock and a steady clock differ, and how often it is read (ns)."""


def _find_elapsed_clock() -> Callable[[], int]:
    """Return a clock that cannot be set, and that counts while the machine sleeps, if there is one.

    Elsewhere `time.monotonic_ns` does (Windows), or is all there is.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # macOS has only the latter, and it counts
        clock = getattr(time, name, None)
        if clock is not None:
            return partial(time.clock_gettime_ns, clock)
    return time.monotonic_ns


elapsed_time: Callable[[], int] = _find_elapsed_clock()
"""Return the nanoseconds since some moment before the process began."""


class SteadyClock:
    """The time that passes for the sessions of a guard, in nanoseconds since 1970 (UTC).

    It is `offset` ahead of `time.monotonic_ns`, and the wall clock is the same, until it is
    `next_sync`. From then on `sync` returns it, and updates `skew`: by how much the wall clock is
    ahead, 0 if that is below `RESOLUTION`. So a call in between reads one clock and no more.
    """

    __slots__ = ("next_sync", "offset", "skew")

    def __init__(self) -> None:
        self.offset = self.next_sync = self.skew = 0

    def sync(self) -> int:
        """Read the clocks, and return the time, which never runs backwards."""
        raise NotImplementedError

    def read(self) -> tuple[int, int | None]:
        """Return the time, and the wall clock's where that differs."""
        at = time.monotonic_ns() + self.offset
        if at >= self.next_sync:
            at = self.sync()
        return at, at + self.skew if self.skew else None


class SystemClock(SteadyClock):
    """The time by the system's clocks, alike for all guards of a store in one boot.

    While they agree it looks at the wall clock once a second: for that long a step of it, and a
    sleep of the machine, go unnoticed.
    """

    __slots__ = ("_elapsed", "_lock", "_monotonic", "_slept", "_wall")

    def __init__(
        self,
        store: Store | None = None,
        *,
        wall: Callable[[], int] = time.time_ns,
        elapsed: Callable[[], int] = elapsed_time,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._wall = wall
        self._elapsed = elapsed
        self._monotonic = monotonic
        passed = elapsed()
        self._slept = passed - monotonic()
        offset = wall() - passed
        if store is not None:
            offset = store.anchor_time(offset, passed)
        self.offset = offset + self._slept

    def sync(self) -> int:
        """See `SteadyClock.sync`."""
        if self._elapsed() - self._monotonic() - self._slept >= RESOLUTION:
            with self._lock:  # threads that wake up at once count the sleep once
                slept = self._elapsed() - self._monotonic() - self._slept
                if slept >= RESOLUTION:
                    self._slept += slept
                    self.offset += slept
        at = self._monotonic() + self.offset
        self.skew = _significant(self._wall() - at)
        self.next_sync = 0 if self.skew else at + RESOLUTION
        return at


class HostClock(SteadyClock):
    """The time by a host's own clock, of which only the steps forward count.

    It cannot tell a clock that is set ahead from time that passes.
    """

    __slots__ = ("_clock", "_last", "_lock", "_now")

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._last = self._now = clock()

    def sync(self) -> int:
        """See `SteadyClock.sync`."""
        with self._lock:
            wall = self._clock()
            self._now += max(0, wall - self._last)
            self._last = wall
            self.skew = _significant(wall - self._now)
            return self._now


class ShiftedClock(SteadyClock):
    """The time of a session that is ahead of its guard's."""

    __slots__ = ("_shift", "_steady_clock")

    def __init__(self, steady_clock: SteadyClock, shift: int) -> None:
        super().__init__()
        self._steady_clock = steady_clock
        self._shift = shift

    def sync(self) -> int:
        """See `SteadyClock.sync`."""
        at, _ = self._steady_clock.read()
        self.skew = _significant(self._steady_clock.skew - self._shift)
        return at + self._shift


def open_steady_clock(clock: Callable[[], int], store: Store | None) -> SteadyClock:
    """Return the time of a guard with this wall clock."""
    return SystemClock(store) if clock is time.time_ns else HostClock(clock)


def continue_from(steady_clock: SteadyClock, latest: int | None) -> SteadyClock:
    """Return a steady clock that is not before `latest` (ns), such as a session's latest event."""
    shift = 0 if latest is None else latest - steady_clock.read()[0]
    return ShiftedClock(steady_clock, shift) if shift > 0 else steady_clock


def _significant(skew: int) -> int:
    return skew if abs(skew) >= RESOLUTION else 0
