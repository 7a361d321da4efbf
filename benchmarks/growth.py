"""The cost of a call as the work grows, as slopes.

    python -m benchmarks.growth [--quick]

The slope is that of log(cost) over log(size): 0 is flat, 1 grows with the size. A call must cost
the same after any number of calls, constraints, sessions and tools (slope 0). All rules are
evaluated, so its cost may grow with them, but no faster (slope 1).
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.hot_path import make_ban
from benchmarks.measure import Block, Measurements, Report, interleave, number, table
from benchmarks.rules import policy
from benchmarks.timing import CallFactory, TimedBlocks, time_session
from benchmarks.workload import Call, call
from policyguard import Guard

BLOCK_SIZE = 100
SLOPE_TOLERANCE = 0.1
"""Tolerance of a slope: noise."""
FEW_FAILURES: CallFactory = functools.partial(call, failing=2)


def calls(folder: Path, size: int) -> TimedBlocks:
    """Earlier calls in the same session."""
    blocks = TimedBlocks(time_session(Guard.load("core").session("s")), FEW_FAILURES, BLOCK_SIZE)
    blocks.run_untimed(size)
    return blocks


def constraints(folder: Path, size: int) -> TimedBlocks:
    """Constraints on other calls of the tool."""
    guard = _guard(folder, policy(0, bounds=f"constraints: {size}"))
    for index in range(size):
        guard._state.constraint_set.put(make_ban(index))
    return TimedBlocks(time_session(guard.session("s")), FEW_FAILURES, BLOCK_SIZE)


def sessions(folder: Path, size: int) -> TimedBlocks:
    """Live sessions, called in turn."""
    guard = _guard(folder, policy(0, bounds=f"sessions: {size + 1}"))
    timed = [time_session(guard.session(f"s{index}")) for index in range(size)]
    index = 0

    def time_next(call: Call) -> tuple[int, int, int | None]:
        nonlocal index
        index = (index + 1) % size
        return timed[index](call)

    return TimedBlocks(time_next, FEW_FAILURES, BLOCK_SIZE)


def rules(folder: Path, size: int) -> TimedBlocks:
    """Rules over the call's arguments."""
    return TimedBlocks(
        time_session(_guard(folder, policy(size)).session("s")), FEW_FAILURES, BLOCK_SIZE
    )


def tools(folder: Path, size: int) -> TimedBlocks:
    """Tools, called in turn, all seen before."""

    def make_call(number: int) -> Call:
        return call(number, 2)._replace(tool=f"search_{number % size}")

    blocks = TimedBlocks(time_session(Guard.load("core").session("s")), make_call, BLOCK_SIZE)
    blocks.run_untimed(size)
    return blocks


BlockFactory = Callable[[Path, int], TimedBlocks]
SCALES: tuple[tuple[BlockFactory, tuple[int, ...], float], ...] = (
    (calls, (100, 1_000, 10_000, 100_000), 0.0),
    (constraints, (100, 1_000, 10_000, 100_000), 0.0),
    (sessions, (1, 10, 100, 1_000), 0.0),
    (tools, (1, 10, 100, 1_000), 0.0),
    (rules, (5, 20, 80, 320), 1.0),
)
"""What grows, its sizes, and the expected slope."""
QUICK_SIZES = 3
"""Sizes of each scale in a quick run."""


def slope(sizes: tuple[int, ...], costs: list[float]) -> float:
    """Return the least-squares slope of the logarithms."""
    points = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True)]
    means = [sum(coordinates) / len(points) for coordinates in zip(*points, strict=True)]
    covariance: float = sum((x - means[0]) * (y - means[1]) for x, y in points)
    variance: float = sum((x - means[0]) ** 2 for x, _ in points)
    return covariance / variance


def format_rows(
    results: Measurements, scales: list[tuple[str, tuple[int, ...], float]]
) -> Iterator[list[object]]:
    for name, sizes, expected_slope in scales:
        for figure in ("check", "record"):
            costs = [results.spread(f"{name} {size}", figure).median for size in sizes]
            actual = slope(sizes, costs)
            is_steeper = actual > expected_slope + SLOPE_TOLERANCE
            result = "steeper than expected" if is_steeper else "as expected"
            measured = ", ".join(
                f"{number(cost)} at {size:,}" for size, cost in zip(sizes, costs, strict=True)
            )
            yield [name, figure, measured, f"{actual:+.3f}", f"{expected_slope:g}", result]


def _guard(folder: Path, text: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(text, "utf-8")
    return Guard.load(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    options = parser.parse_args()
    rounds = 40 if options.quick else 200
    scales = [
        (factory.__name__, sizes[:QUICK_SIZES] if options.quick else sizes, expected_slope)
        for factory, sizes, expected_slope in SCALES
    ]
    report = Report("growth", "Cost against work")
    with tempfile.TemporaryDirectory() as folder:
        blocks: dict[str, Block] = {
            f"{factory.__name__} {size}": factory(Path(folder), size)
            for (factory, _, _), (_, sizes, _) in zip(SCALES, scales, strict=True)
            for size in sizes
        }
        gc.collect()
        gc.freeze()
        results = interleave(blocks, rounds)
    rows = list(format_rows(results, scales))
    report.add(f"Medians over {rounds} blocks of {BLOCK_SIZE} calls under `core`, µs per call.")
    report.add(table(["what grows", "step", "µs", "slope", "expected", "result"], rows))
    report.spreads(results)
    report.figures["slopes"] = {f"{row[0]}, {row[1]}": row[3] for row in rows}
    report.write()


if __name__ == "__main__":
    main()
