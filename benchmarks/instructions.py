"""Instructions of a check and a record, of policyguard and the floor, counted by callgrind.

    python -m benchmarks.instructions

Time is noisy on a shared machine; instruction counts hardly are. A process starts, loads `core`
from the cache and makes a number of calls; the cost of a call is the difference between two such
runs over that of their calls. The start varies by some millions of instructions, so the difference
must be large. A test keeps the ratio to the floor below the limit in `instructions.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workload import Call, call

SHORT, LONG = 1_000, 5_000
FAILING = 2
"""Of a hundred calls."""
NOTHING = "nothing"
"""Only builds the calls; its cost is subtracted."""
CHAINED = "floor, one chained line a call"
LINES = "floor, chain and lines"
JOURNALLED = "core, SQLite and journal"
OURS = {"floor": "core", CHAINED: "core", LINES: JOURNALLED}
"""The contender to compare with each floor."""
CONTENDERS = ("core", JOURNALLED, *OURS)
BOUNDS = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).resolve().parents[1]


class CannotCountError(Exception):
    """Instructions cannot be counted; the message says why."""


@dataclass(frozen=True)
class Counted:
    """Instructions a call (check and record), by contender."""

    calls: dict[str, float]

    def ratio(self, floor: str) -> float:
        """Return our instructions over a floor's."""
        return self.calls[OURS[floor]] / self.calls[floor]


def bounds() -> dict[str, float]:
    """Return the maximum ratio by floor."""
    read: dict[str, float] = json.loads(BOUNDS.read_text("utf-8"))["at_most"]
    return read


def count() -> Counted:
    """Count instructions. Raises `CannotCountError` if valgrind is missing or fails."""
    if shutil.which("valgrind") is None:
        raise CannotCountError("valgrind is not installed")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "POLICYGUARD_CACHE": cache}
        # Compile every module and `core` first, so that it is not counted.
        for contender in CONTENDERS:
            subprocess.run(_command(contender, 10), cwd=ROOT, env=environment, check=True)
        short, long = (
            {one: _instructions(one, calls, environment) for one in (NOTHING, *CONTENDERS)}
            for calls in (SHORT, LONG)
        )
    per_call = {one: (long[one] - short[one]) / (LONG - SHORT) for one in long}
    return Counted({one: per_call[one] - per_call[NOTHING] for one in CONTENDERS})


def _command(contender: str, calls: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.instructions", "--make", contender, str(calls)]


def _instructions(contender: str, calls: int, environment: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command += _command(contender, calls)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise CannotCountError(f"valgrind failed: {done.stderr.strip()[-300:]}")
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise CannotCountError("callgrind counted nothing")
    return int(found[1])


def _run_calls(contender: str, calls: int) -> None:
    """Make the calls that are counted."""
    calls_made = [call(number, FAILING) for number in range(calls)]
    with tempfile.TemporaryDirectory() as folder:
        if contender in OURS.values():
            _call_guard(calls_made, Path(folder) / "store.db" if contender == JOURNALLED else None)
        elif contender in OURS:
            _call_floor(calls_made, contender, Path(folder) / "lines")


def _call_guard(calls_made: list[Call], store: Path | None) -> None:
    from policyguard import Guard

    with Guard.load("core", store=store, cache=True) as guard:
        session = guard.session("s")
        for one in calls_made:
            decision = session.check(one.tool, one.args)
            if one.error is None:
                session.record(decision, result=one.result)
            else:
                session.record(decision, error=one.error)


def _call_floor(calls_made: list[Call], contender: str, lines: Path) -> None:
    from benchmarks.floor import Floor, appending, nowhere

    write = nowhere if contender == CHAINED else None
    if contender == LINES:
        write = appending(str(lines))
    floor = Floor(write, twice=contender == LINES)
    for one in calls_made:
        floor.record(floor.check(one.tool, one.args), one.error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", nargs=2, metavar=("CONTENDER", "CALLS"), help="what is counted")
    options = parser.parse_args()
    if options.make:
        contender, calls = options.make
        _run_calls(contender, int(calls))
        return
    from benchmarks.measure import Report, table

    report = Report("instructions", "Instructions a call (check and record)")
    try:
        counted = count()
    except CannotCountError as error:
        report.add(f"Not counted: {error}.")
        report.write()
        return
    max_ratios = bounds()
    rows = []
    for one, calls in counted.calls.items():
        ratio = f"{counted.ratio(one):.2f}" if one in max_ratios else "–"
        rows.append((one, f"{calls:,.0f}", ratio, max_ratios.get(one, "–")))
    report.add(table(["contender", "instructions", "ours ÷ this", "at most"], rows))
    report.figures = dict(counted.calls)
    report.write()


if __name__ == "__main__":
    main()
