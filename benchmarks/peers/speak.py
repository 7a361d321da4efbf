"""What a peer's process says and hears: one JSON value a line.

It says its version when it is ready, then for each block's number what that block gave. It runs in
the peer's own environment, so only the standard library and what needs no more is used here.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.calls import Call, call
from benchmarks.measure import Figures, clock_cost, undisturbed

LARGEST, SMALLEST = 100, 10
"""Calls in a block."""
LASTS = 2_000_000
"""Nanoseconds that a block should last at most: a longer one would often be interrupted."""
FAILING = 2
"""Of a hundred calls."""


class Times(NamedTuple):
    """Nanoseconds that a block's checks and records took, and how many calls were admitted.

    `records` is None where nothing is recorded.
    """

    checks: int
    records: int | None
    admitted: int


Run = Callable[[list[Call]], Times]
"""Makes the calls of a block."""


def each(check: Callable[[Call], Any], record: Callable[[Call, Any], object] | None = None) -> Run:
    """Calls one after the other: `check` gives whatever is true where the call may run."""
    clock = time.perf_counter_ns

    def run(calls: list[Call]) -> Times:
        checks = records = admitted = 0
        for one in calls:
            begun = clock()
            answer = check(one)
            checked = clock()
            checks += checked - begun
            if answer:
                admitted += 1
                if record is not None:
                    record(one, answer)
                    records += clock() - checked
        return Times(checks, records if record is not None else None, admitted)

    return run


def serve(distribution: str, run: Run) -> None:
    """Answer until nobody asks any more."""
    _say(importlib.metadata.version(distribution))
    blocks = _Blocks(run)
    for line in sys.stdin:
        figures = undisturbed(blocks, json.loads(line))
        _say(figures)
        blocks.size = max(SMALLEST, min(LARGEST, int(LASTS / 1000 / figures["pair"])))


class _Blocks:
    """One block after the other, of `size` calls."""

    def __init__(self, run: Run) -> None:
        self.size = SMALLEST
        self._run = run
        self._next = 0
        self._cost = clock_cost()

    def __call__(self, turn: int) -> Figures:
        first, self._next = self._next, self._next + self.size
        return _block(self._run, range(first, self._next), self._cost)


def _block(run: Run, numbers: range, cost: float) -> Figures:
    calls = [call(number, FAILING) for number in numbers]
    taken = run(calls)
    size = len(calls)
    check = (taken.checks / size - cost) / 1000
    figures = {"check": check, "pair": check, "admitted": taken.admitted / size}
    if taken.records is not None and taken.admitted:
        figures["record"] = (taken.records / taken.admitted - cost) / 1000
        figures["pair"] = check + figures["record"]
    return figures


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)
