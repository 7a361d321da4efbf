"""Blocks of calls through a session of policyguard, or through the floor, timed call by call."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.calls import Call
from benchmarks.floor import Floor
from benchmarks.measure import Figures, clock_cost
from policyguard.guard import Session

Work = Callable[[int], Call]
"""The call of a number."""
_COST = clock_cost()


Timed = Callable[[Call], tuple[int, int, int | None]]
"""Checks and records one call: when it began, was checked, was recorded (ns).

The last is None where the call was refused.
"""


def through(session: Session) -> Timed:
    """Calls through a session."""
    clock = time.perf_counter_ns
    check, record = session.check, session.record

    def timed(call: Call) -> tuple[int, int, int | None]:
        begun = clock()
        decision = check(call.tool, call.args)
        checked = clock()
        if not decision.allowed:
            return begun, checked, None
        if call.error is None:
            record(decision, result=call.result)
        else:
            record(decision, error=call.error)
        return begun, checked, clock()

    return timed


def through_floor(floor: Floor) -> Timed:
    """Calls through the floor."""
    clock = time.perf_counter_ns

    def timed(call: Call) -> tuple[int, int, int | None]:
        begun = clock()
        decision = floor.check(call.tool, call.args)
        checked = clock()
        if not decision.allowed:
            return begun, checked, None
        floor.record(decision, call.error)
        return begun, checked, clock()

    return timed


class Blocks:
    """Blocks of `size` calls each, all different: the mean cost of a check and of a record, in µs.

    `pair` is both; `admitted` the share of calls that were.
    """

    def __init__(self, timed: Timed, work: Work, size: int, first: int = 0) -> None:
        self._timed = timed
        self._work = work
        self._size = size
        self._next = first

    def __call__(self, turn: int) -> Figures:
        numbers = range(self._next, self._next + self._size)
        self._next += self._size
        calls = [self._work(number) for number in numbers]
        checks = records = recorded = 0
        timed = self._timed
        for call in calls:
            begun, checked, done = timed(call)
            checks += checked - begun
            if done is not None:
                records += done - checked
                recorded += 1
        check = (checks / self._size - _COST) / 1000
        figures = {"check": check, "admitted": recorded / self._size}
        if recorded:
            figures["record"] = (records / recorded - _COST) / 1000
            figures["pair"] = check + figures["record"]
        return figures

    def ahead(self, calls: int) -> None:
        """Make so many calls that nobody times."""
        for number in range(self._next, self._next + calls):
            self._timed(self._work(number))
        self._next += calls


class Threads:
    """The same calls by several threads, a session each: µs a pair, all threads together."""

    def __init__(self, sessions: list[Session], work: Work, size: int) -> None:
        self._pool = ThreadPoolExecutor(len(sessions))
        self._timed = [through(session) for session in sessions]
        self._work = work
        self._size = size
        self._next = 0

    def __call__(self, turn: int) -> Figures:
        first, self._next = self._next, self._next + self._size
        calls = [self._work(number) for number in range(first, self._next)]
        begun = time.perf_counter_ns()
        admitted = sum(self._pool.map(lambda timed: _run(timed, calls), self._timed))
        taken = time.perf_counter_ns() - begun
        whole = self._size * len(self._timed)
        return {"pair": taken / whole / 1000 - 3 * _COST / 1000, "admitted": admitted / whole}


def _run(timed: Timed, calls: list[Call]) -> int:
    return sum(timed(call)[2] is not None for call in calls)
