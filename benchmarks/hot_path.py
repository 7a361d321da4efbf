"""The cost of check and record, and its ratio to the floor.

    python -m benchmarks.hot_path [--quick]

All contenders run in one process and take turns in blocks of 100 calls with different arguments.
The floor (`floor.py`) is the minimum work of such a guard in Python.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import tempfile
from pathlib import Path

from benchmarks.floor import Floor, discard, open_appender
from benchmarks.measure import Block, Measurements, Report, interleave, table
from benchmarks.rules import policy
from benchmarks.timing import (
    CallFactory,
    ThreadedBlocks,
    TimedBlocks,
    time_floor,
    time_hash,
    time_session,
)
from benchmarks.workload import (
    call,
    large_call,
    mixed_call,
    nested_call,
    nested_large_call,
    repeated_failure,
)
from policyguard import Guard
from policyguard.model.constraint import Constraint

BLOCK_SIZE = 100
THREAD_BLOCK_SIZE = 250
"""Calls per thread and block: enough for threads to contend."""
FEW_FAILURES: CallFactory = functools.partial(call, failing=2)
ALL_FAIL: CallFactory = functools.partial(call, failing=100)
FLOOR, FLOOR_ALL, FLOOR_LINES = "floor", "floor, all fail", "floor, chain and lines"
FLOOR_CHAIN = "floor, one chained line per call, not written"
FLOOR_LINES_ALL = "floor, chain and lines, all fail"
CORE = "core"
NESTED = "core, nested arguments"
LARGE, NESTED_LARGE = "core, 20 kB of text", "core, 20 kB of text, nested"
HASHED = "20 kB of text, encoded and hashed"


class Contenders:
    """Everything that is measured, by name, with the floor to compare with.

    Only contenders whose name contains `name_filter` are built, and all floors.
    """

    def __init__(self, folder: Path, *, quick: bool, name_filter: str) -> None:
        self._folder = folder
        self._name_filter = name_filter
        self._guards = contextlib.ExitStack()
        self.blocks: dict[str, Block] = {}
        self.floors: dict[str, str] = {}
        self._add_floors()
        self._add_session(CORE, FEW_FAILURES)
        self._add_session(NESTED, functools.partial(nested_call, failing=2), CORE)
        for name, make_call in ((LARGE, large_call), (NESTED_LARGE, nested_large_call)):
            self._add_session(name, functools.partial(make_call, failing=2), HASHED)
        self._add_session("core, all fail", ALL_FAIL, FLOOR_ALL)
        self._add_session("core, five tools, one a shell", functools.partial(mixed_call, failing=2))
        self._add_session("core, every other call refused", repeated_failure)
        for count in (15, 50):
            self._add_session(f"core and {count} CEL rules", FEW_FAILURES, text=policy(count))
        for count in (1_000, 100_000 if quick else 1_000_000):
            self._add_session(f"core, {count:,} constraints", FEW_FAILURES, constraints=count)
        for events in (100_000, 200_000 if quick else 1_000_000):
            self._add_session(f"core, {events:,} events ago", FEW_FAILURES, events=events)
        self._add_session("core, SQLite, no journal", FEW_FAILURES, durability="memory")
        self._add_session(
            "core, SQLite and journal", FEW_FAILURES, FLOOR_LINES, durability="process"
        )
        name = "core, SQLite and journal, all fail"
        self._add_session(name, ALL_FAIL, FLOOR_LINES_ALL, durability="process")
        for threads in (1, 4):
            self._add_threads(f"core, {threads} thread{'s'[: threads - 1]}", threads)

    def _add_floors(self) -> None:
        lines = open_appender(str(self._folder / "floor.jsonl"))
        for name, floor, make_call in (
            (FLOOR, Floor(), FEW_FAILURES),
            (FLOOR_ALL, Floor(), ALL_FAIL),
            (FLOOR_CHAIN, Floor(discard, line_on_check=False), FEW_FAILURES),
            (FLOOR_LINES, Floor(lines), FEW_FAILURES),
            (FLOOR_LINES_ALL, Floor(lines), ALL_FAIL),
        ):
            self.blocks[name] = TimedBlocks(time_floor(floor), make_call, BLOCK_SIZE)
            self.floors[name] = FLOOR
        large = functools.partial(large_call, failing=2)
        self.blocks[HASHED] = TimedBlocks(time_hash, large, BLOCK_SIZE)
        self.floors[HASHED] = HASHED

    def close(self) -> None:
        """Close the guards, while the folder of their stores exists."""
        self._guards.close()

    def _load_guard(self, text: str = "", durability: str = "") -> Guard:
        name = f"{len(self.blocks)}"
        text = text or policy(0)
        store: Path | None = None
        if durability:
            text += f"journal: {{durability: {durability}}}\n"
            store = self._folder / name / "store.db"
        file = self._folder / f"{name}.yaml"
        file.write_text(text, "utf-8")
        guard = Guard.load(file, store=store)
        self._guards.callback(guard.close)
        return guard

    def _add_session(
        self,
        name: str,
        make_call: CallFactory,
        floor: str = FLOOR,
        *,
        text: str = "",
        durability: str = "",
        constraints: int = 0,
        events: int = 0,
    ) -> None:
        if self._name_filter not in name and name != CORE:  # which is a floor, too
            return
        if constraints:
            text = policy(0, bounds=f"constraints: {constraints}")
        guard = self._load_guard(text, durability)
        for number in range(constraints):
            guard._state.constraint_set.put(make_ban(number))
        assert len(guard.constraints()) == constraints
        blocks = TimedBlocks(time_session(guard.session("s")), make_call, BLOCK_SIZE)
        blocks.run_untimed(events // 2)
        self.blocks[name] = blocks
        self.floors[name] = floor

    def _add_threads(self, name: str, threads: int) -> None:
        if self._name_filter in name:
            guard = self._load_guard()
            sessions = [guard.session(f"t{number}") for number in range(threads)]
            self.blocks[name] = ThreadedBlocks(sessions, FEW_FAILURES, THREAD_BLOCK_SIZE)


def make_ban(number: int) -> Constraint:
    """Return a ban of another call of the same tool, in the same session."""
    return Constraint(
        id=f"k{number}",
        kind="banned_strategy",
        learn="learn",
        scope="session:s",
        key=f"call:{number:032x}",
        signature="not_found",
        tool="search",
        count=2,
    )


def format_table(results: Measurements, contenders: Contenders) -> str:
    """Return a table with a row per contender."""
    rows = []
    for name in contenders.blocks:
        floor = contenders.floors.get(name, "")
        row: list[object] = [name]
        row += [results.spread(name, figure) for figure in ("check", "record", "pair")]
        if floor and name != floor:
            row += [results.ratio(name, floor, figure) for figure in ("check", "record", "pair")]
        else:
            row += ["–"] * 3
        is_comparable = floor in (FLOOR, FLOOR_ALL) and name != FLOOR_CHAIN
        row.append(results.ratio(name, FLOOR_CHAIN, "pair") if is_comparable else "–")
        row.append(f"{100 * results.spread(name, 'admitted').median:.0f} %")
        rows.append(row)
    floors = ["check ÷ floor", "record ÷ floor", "both ÷ floor", "both ÷ floor with a chained line"]
    heads = ["contender", "check µs", "record µs", "both µs", *floors, "admitted"]
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only contenders whose name contains TEXT"
    )
    options = parser.parse_args()
    rounds = 60 if options.quick else 200
    report = Report("hot_path", "Check and record")
    with tempfile.TemporaryDirectory() as folder:
        contenders = Contenders(Path(folder), quick=options.quick, name_filter=options.only)
        gc.collect()
        gc.freeze()  # so that the collector skips other contenders' objects
        results = interleave(contenders.blocks, rounds)
        contenders.close()
    report.add(
        f"Medians over {rounds} blocks of {BLOCK_SIZE} calls, quartiles in brackets; "
        f"{call(7, 2).args} and 2 % failures unless stated. "
        "Threads: µs per pair, all threads together."
    )
    report.add(format_table(results, contenders))
    report.spreads(results)
    report.figures["ratios"] = {
        name: {f: results.ratio(name, floor, f).median for f in ("check", "record", "pair")}
        for name, floor in contenders.floors.items()
    }
    report.write()


if __name__ == "__main__":
    main()
