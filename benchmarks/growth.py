"""What a call costs as the work grows, as slopes.

    python -m benchmarks.growth [--quick]

The slope is that of the cost's logarithm over the size's: 0 is flat, 1 grows as the size does. Of
calls, constraints, sessions and tools a call must cost as much as the first (slope 0); rules are
all asked, so that a call may grow with them, but no faster (slope 1).
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.calls import Call, call
from benchmarks.guarded import Blocks, Work, through
from benchmarks.hot_path import banned
from benchmarks.measure import Block, Report, Taken, interleave, number, table
from benchmarks.rules import policy
from policyguard import Guard

SIZE = 100
STEEP = 0.1
"""How much steeper than it should be a slope may be before the table says so: noise."""
FEW: Work = functools.partial(call, failing=2)


def calls(folder: Path, size: int) -> Blocks:
    """So many calls before, in the same session."""
    made = Blocks(through(Guard.load("core").session("s")), FEW, SIZE)
    made.ahead(size)
    return made


def constraints(folder: Path, size: int) -> Blocks:
    """So many constraints on other calls of the tool."""
    guard = _guard(folder, policy(0, bounds=f"constraints: {size}"))
    for place in range(size):
        guard._state.constraint_set.put(banned(place))
    return Blocks(through(guard.session("s")), FEW, SIZE)


def sessions(folder: Path, size: int) -> Blocks:
    """So many live sessions, called in turn."""
    guard = _guard(folder, policy(0, bounds=f"sessions: {size + 1}"))
    timed = [through(guard.session(f"s{place}")) for place in range(size)]
    place = 0

    def next_one(made: Call) -> tuple[int, int, int | None]:
        nonlocal place
        place = (place + 1) % size
        return timed[place](made)

    return Blocks(next_one, FEW, SIZE)


def rules(folder: Path, size: int) -> Blocks:
    """So many rules over the call's arguments."""
    return Blocks(through(_guard(folder, policy(size)).session("s")), FEW, SIZE)


def tools(folder: Path, size: int) -> Blocks:
    """So many tools, called in turn, all met before."""

    def work(place: int) -> Call:
        return call(place, 2)._replace(tool=f"search_{place % size}")

    made = Blocks(through(Guard.load("core").session("s")), work, SIZE)
    made.ahead(size)
    return made


Make = Callable[[Path, int], Blocks]
LADDERS: tuple[tuple[Make, tuple[int, ...], float], ...] = (
    (calls, (100, 1_000, 10_000, 100_000), 0.0),
    (constraints, (100, 1_000, 10_000, 100_000), 0.0),
    (sessions, (1, 10, 100, 1_000), 0.0),
    (tools, (1, 10, 100, 1_000), 0.0),
    (rules, (5, 20, 80, 320), 1.0),
)
"""What grows, by which sizes, and the slope that is right for it."""
QUICK = 3
"""Of each ladder's sizes, the first few."""


def slope(sizes: tuple[int, ...], costs: list[float]) -> float:
    """Of the least squares through the logarithms."""
    points = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True)]
    middle = [sum(values) / len(points) for values in zip(*points, strict=True)]
    up: float = sum((x - middle[0]) * (y - middle[1]) for x, y in points)
    across: float = sum((x - middle[0]) ** 2 for x, _ in points)
    return up / across


def told(taken: Taken, ladders: list[tuple[str, tuple[int, ...], float]]) -> Iterator[list[object]]:
    for name, sizes, right in ladders:
        for figure in ("check", "record"):
            costs = [taken.spread(f"{name} {size}", figure).median for size in sizes]
            found = slope(sizes, costs)
            verdict = "steeper than it should be" if found > right + STEEP else "as it should be"
            measured = ", ".join(
                f"{number(cost)} at {size:,}" for size, cost in zip(sizes, costs, strict=True)
            )
            yield [name, figure, measured, f"{found:+.3f}", f"{right:g}", verdict]


def _guard(folder: Path, text: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(text, "utf-8")
    return Guard.load(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    options = parser.parse_args()
    rounds = 40 if options.quick else 200
    ladders = [
        (make.__name__, sizes[:QUICK] if options.quick else sizes, right)
        for make, sizes, right in LADDERS
    ]
    report = Report("growth", "Cost against work")
    with tempfile.TemporaryDirectory() as folder:
        blocks: dict[str, Block] = {
            f"{make.__name__} {size}": make(Path(folder), size)
            for (make, _, _), (_, sizes, _) in zip(LADDERS, ladders, strict=True)
            for size in sizes
        }
        gc.collect()
        gc.freeze()
        taken = interleave(blocks, rounds)
    rows = list(told(taken, ladders))
    report.add(f"Medians over {rounds} blocks of {SIZE} calls under `core`, µs a call.")
    report.add(table(["what grows", "step", "µs", "slope", "right", "verdict"], rows))
    report.spreads(taken)
    report.figures["slopes"] = {f"{row[0]}, {row[1]}": row[3] for row in rows}
    report.write()


if __name__ == "__main__":
    main()
