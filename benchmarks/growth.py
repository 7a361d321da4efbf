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
from benchmarks.timing import TimedBlocks, Work, time_session
from benchmarks.workload import Call, call
from policyguard import Guard

SIZE = 100
SLOPE_TOLERANCE = 0.1
"""Tolerance of a slope: noise."""
FEW: Work = functools.partial(call, failing=2)


def calls(folder: Path, size: int) -> TimedBlocks:
    """Earlier calls in the same session."""
    blocks = TimedBlocks(time_session(Guard.load("core").session("s")), FEW, SIZE)
    blocks.ahead(size)
    return blocks


def constraints(folder: Path, size: int) -> TimedBlocks:
    """Constraints on other calls of the tool."""
    guard = _guard(folder, policy(0, bounds=f"constraints: {size}"))
    for place in range(size):
        guard._state.constraint_set.put(make_ban(place))
    return TimedBlocks(time_session(guard.session("s")), FEW, SIZE)


def sessions(folder: Path, size: int) -> TimedBlocks:
    """Live sessions, called in turn."""
    guard = _guard(folder, policy(0, bounds=f"sessions: {size + 1}"))
    timed = [time_session(guard.session(f"s{place}")) for place in range(size)]
    place = 0

    def next_one(blocks: Call) -> tuple[int, int, int | None]:
        nonlocal place
        place = (place + 1) % size
        return timed[place](blocks)

    return TimedBlocks(next_one, FEW, SIZE)


def rules(folder: Path, size: int) -> TimedBlocks:
    """Rules over the call's arguments."""
    return TimedBlocks(time_session(_guard(folder, policy(size)).session("s")), FEW, SIZE)


def tools(folder: Path, size: int) -> TimedBlocks:
    """Tools, called in turn, all seen before."""

    def work(place: int) -> Call:
        return call(place, 2)._replace(tool=f"search_{place % size}")

    blocks = TimedBlocks(time_session(Guard.load("core").session("s")), work, SIZE)
    blocks.ahead(size)
    return blocks


Make = Callable[[Path, int], TimedBlocks]
SCALES: tuple[tuple[Make, tuple[int, ...], float], ...] = (
    (calls, (100, 1_000, 10_000, 100_000), 0.0),
    (constraints, (100, 1_000, 10_000, 100_000), 0.0),
    (sessions, (1, 10, 100, 1_000), 0.0),
    (tools, (1, 10, 100, 1_000), 0.0),
    (rules, (5, 20, 80, 320), 1.0),
)
"""What grows, its sizes, and the expected slope."""
QUICK = 3
"""Sizes of each scale in a quick run."""


def slope(sizes: tuple[int, ...], costs: list[float]) -> float:
    """Return the least-squares slope of the logarithms."""
    points = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True)]
    middle = [sum(values) / len(points) for values in zip(*points, strict=True)]
    up: float = sum((x - middle[0]) * (y - middle[1]) for x, y in points)
    across: float = sum((x - middle[0]) ** 2 for x, _ in points)
    return up / across


def format_rows(
    results: Measurements, scales: list[tuple[str, tuple[int, ...], float]]
) -> Iterator[list[object]]:
    for name, sizes, expected_slope in scales:
        for figure in ("check", "record"):
            costs = [results.spread(f"{name} {size}", figure).median for size in sizes]
            actual = slope(sizes, costs)
            is_steeper = actual > expected_slope + SLOPE_TOLERANCE
            verdict = "steeper than expected" if is_steeper else "as expected"
            measured = ", ".join(
                f"{number(cost)} at {size:,}" for size, cost in zip(sizes, costs, strict=True)
            )
            yield [name, figure, measured, f"{actual:+.3f}", f"{expected_slope:g}", verdict]


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
        (make.__name__, sizes[:QUICK] if options.quick else sizes, expected_slope)
        for make, sizes, expected_slope in SCALES
    ]
    report = Report("growth", "Cost against work")
    with tempfile.TemporaryDirectory() as folder:
        blocks: dict[str, Block] = {
            f"{make.__name__} {size}": make(Path(folder), size)
            for (make, _, _), (_, sizes, _) in zip(SCALES, scales, strict=True)
            for size in sizes
        }
        gc.collect()
        gc.freeze()
        results = interleave(blocks, rounds)
    rows = list(format_rows(results, scales))
    report.add(f"Medians over {rounds} blocks of {SIZE} calls under `core`, µs a call.")
    report.add(table(["what grows", "step", "µs", "slope", "right", "verdict"], rows))
    report.spreads(results)
    report.figures["slopes"] = {f"{row[0]}, {row[1]}": row[3] for row in rows}
    report.write()


if __name__ == "__main__":
    main()
