"""Blocks of calls to a policyguard session or to the floor, timed call by call."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.floor import Floor
from benchmarks.measure import Figures, clock_cost
from benchmarks.workload import Call
from policyguard.guard import Session

CallFactory = Callable[[int], Call]
"""Returns the call with a number."""
_CLOCK_COST = clock_cost()


TimedCall = Callable[[Call], tuple[int, int, int | None]]
"""Checks and records one call; returns when it started, was checked, was recorded (ns).

The last is None if the call was refused.
"""


def time_session(session: Session) -> TimedCall:
    """Return a function that times calls to a session."""
    clock = time.perf_counter_ns
    check, record = session.check, session.record

    def timed(call: Call) -> tuple[int, int, int | None]:
        start = clock()
        decision = check(call.tool, call.args)
        checked = clock()
        if not decision.allowed:
            return start, checked, None
        if call.error is None:
            record(decision, result=call.result)
        else:
            record(decision, error=call.error)
        return start, checked, clock()

    return timed


def time_floor(floor: Floor) -> TimedCall:
    """Return a function that times calls to the floor."""
    clock = time.perf_counter_ns

    def timed(call: Call) -> tuple[int, int, int | None]:
        start = clock()
        decision = floor.check(call.tool, call.args)
        checked = clock()
        if not decision.allowed:
            return start, checked, None
        floor.record(decision, call.error)
        return start, checked, clock()

    return timed


def time_hash(call: Call) -> tuple[int, int, int | None]:
    """Time how long encoding and hashing the call's text takes."""
    start = time.perf_counter_ns()
    hashlib.blake2b(call.args["text"].encode()).digest()
    return start, time.perf_counter_ns(), None


class TimedBlocks:
    """Blocks of `size` different calls: the mean cost of a check and of a record, in µs.

    `pair` is both, `admitted` the share of admitted calls.
    """

    def __init__(self, timed: TimedCall, make_call: CallFactory, size: int, first: int = 0) -> None:
        self._timed = timed
        self._make_call = make_call
        self._size = size
        self._next = first

    def __call__(self, turn: int) -> Figures:
        numbers = range(self._next, self._next + self._size)
        self._next += self._size
        calls = [self._make_call(number) for number in numbers]
        checks = records = recorded = 0
        timed = self._timed
        for call in calls:
            start, checked, done = timed(call)
            checks += checked - start
            if done is not None:
                records += done - checked
                recorded += 1
        check = (checks / self._size - _CLOCK_COST) / 1000
        figures = {"check": check, "admitted": recorded / self._size}
        if recorded:
            figures["record"] = (records / recorded - _CLOCK_COST) / 1000
            figures["pair"] = check + figures["record"]
        return figures

    def run_untimed(self, calls: int) -> None:
        """Make calls without timing them."""
        for number in range(self._next, self._next + calls):
            self._timed(self._make_call(number))
        self._next += calls


class ThreadedBlocks:
    """The same calls by several threads, each with its own session: µs per pair."""

    def __init__(self, sessions: list[Session], make_call: CallFactory, size: int) -> None:
        self._pool = ThreadPoolExecutor(len(sessions))
        self._timed = [time_session(session) for session in sessions]
        self._make_call = make_call
        self._size = size
        self._next = 0

    def __call__(self, turn: int) -> Figures:
        first, self._next = self._next, self._next + self._size
        calls = [self._make_call(number) for number in range(first, self._next)]
        start = time.perf_counter_ns()
        admitted = sum(self._pool.map(lambda timed: _run(timed, calls), self._timed))
        elapsed = time.perf_counter_ns() - start
        total = self._size * len(self._timed)
        return {
            "pair": elapsed / total / 1000 - 3 * _CLOCK_COST / 1000,
            "admitted": admitted / total,
        }


def _run(timed: TimedCall, calls: list[Call]) -> int:
    return sum(timed(call)[2] is not None for call in calls)
