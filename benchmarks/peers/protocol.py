"""The protocol of a peer's process: one JSON value per line.

The process sends its version when it is ready, then the figures of each block whose number it
receives. It runs in the peer's environment, so it uses only the standard library.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.measure import Figures, clock_cost, run_uninterrupted
from benchmarks.workload import Call, call

MAX_CALLS, MIN_CALLS = 100, 10
"""Calls in a block."""
MAX_BLOCK_NS = 2_000_000
"""Nanoseconds: a longer block would often be interrupted."""
FAILING = 2
"""Failing calls per hundred."""


class Times(NamedTuple):
    """Nanoseconds of a block's checks and records, and the number of admitted calls.

    `records` is None if nothing is recorded.
    """

    checks: int
    records: int | None
    admitted: int


Run = Callable[[list[Call]], Times]
"""Makes and times the calls of a block."""


def time_each(
    check: Callable[[Call], Any], record: Callable[[Call, Any], object] | None = None
) -> Run:
    """Return a function that times calls; `check` returns a true value if the call may run."""
    clock = time.perf_counter_ns

    def run(calls: list[Call]) -> Times:
        checks = records = admitted = 0
        for one in calls:
            start = clock()
            result = check(one)
            checked = clock()
            checks += checked - start
            if result:
                admitted += 1
                if record is not None:
                    record(one, result)
                    records += clock() - checked
        return Times(checks, records if record is not None else None, admitted)

    return run


def serve(distribution: str, run: Run) -> None:
    """Run blocks until standard input ends."""
    _send(importlib.metadata.version(distribution))
    blocks = _BlockRunner(run)
    for line in sys.stdin:
        figures = run_uninterrupted(blocks, json.loads(line))
        _send(figures)
        blocks.size = max(MIN_CALLS, min(MAX_CALLS, int(MAX_BLOCK_NS / 1000 / figures["pair"])))


class _BlockRunner:
    """Runs blocks of `size` calls."""

    def __init__(self, run: Run) -> None:
        self.size = MIN_CALLS
        self._run = run
        self._next = 0
        self._cost = clock_cost()

    def __call__(self, turn: int) -> Figures:
        first, self._next = self._next, self._next + self.size
        return _block(self._run, range(first, self._next), self._cost)


def _block(run: Run, numbers: range, cost: float) -> Figures:
    calls = [call(number, FAILING) for number in numbers]
    times = run(calls)
    size = len(calls)
    check = (times.checks / size - cost) / 1000
    figures = {"check": check, "pair": check, "admitted": times.admitted / size}
    if times.records is not None and times.admitted:
        figures["record"] = (times.records / times.admitted - cost) / 1000
        figures["pair"] = check + figures["record"]
    return figures


def _send(value: object) -> None:
    print(json.dumps(value), flush=True)
