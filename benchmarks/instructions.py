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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workload import Call, call

SHORT, LONG = 1_000, 5_000
FAILURES = 2
"""Per hundred calls."""
NO_GUARD = "nothing"
"""Only builds the calls; its cost is subtracted."""
CHAINED = "floor, one chained line per call"
LINES = "floor, chain and lines"
JOURNALLED = "core, SQLite and journal"
OURS = {"floor": "core", CHAINED: "core", LINES: JOURNALLED}
"""The contender to compare with each floor."""
CONTENDERS = ("core", JOURNALLED, *OURS)
RATIOS_FILE = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).resolve().parents[1]


class CannotCountError(Exception):
    """Instructions cannot be counted; the message says why."""


@dataclass(frozen=True)
class InstructionCounts:
    """Instructions per call (check and record), by contender."""

    calls: dict[str, float]

    def ratio(self, floor: str) -> float:
        """Return our instructions over a floor's."""
        return self.calls[OURS[floor]] / self.calls[floor]


def max_ratios() -> dict[str, float]:
    """Return the maximum ratio by floor."""
    limits: dict[str, float] = json.loads(RATIOS_FILE.read_text("utf-8"))["at_most"]
    return limits


def count(contenders: Sequence[str] = CONTENDERS) -> InstructionCounts:
    """Count instructions. Raises `CannotCountError` if valgrind is missing or fails."""
    if shutil.which("valgrind") is None:
        raise CannotCountError("valgrind is not installed")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "POLICYGUARD_CACHE": cache}
        # Compile every module and `core` first, so that it is not counted.
        for contender in contenders:
            subprocess.run(_command(contender, 10), cwd=ROOT, env=environment, check=True)
        short, long = (
            {
                contender: _instructions(contender, calls, environment)
                for contender in (NO_GUARD, *contenders)
            }
            for calls in (SHORT, LONG)
        )
    per_call = {
        contender: (long[contender] - short[contender]) / (LONG - SHORT) for contender in long
    }
    return InstructionCounts(
        {contender: per_call[contender] - per_call[NO_GUARD] for contender in contenders}
    )


def _command(contender: str, calls: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.instructions", "--make", contender, str(calls)]


def _instructions(contender: str, calls: int, environment: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"]
        command += _command(contender, calls)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise CannotCountError(f"valgrind failed: {done.stderr.strip()[-300:]}")
        match = re.search(r"^(?:summary|totals): (\d+)", profile.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise CannotCountError("callgrind counted nothing")
    return int(match[1])


def _run_calls(contender: str, calls: int) -> None:
    """Make the calls that are counted."""
    workload = [call(number, FAILURES) for number in range(calls)]
    with tempfile.TemporaryDirectory() as folder:
        if contender in OURS.values():
            _call_guard(workload, Path(folder) / "store.db" if contender == JOURNALLED else None)
        elif contender in OURS:
            _call_floor(workload, contender, Path(folder) / "lines")


def _call_guard(workload: list[Call], store: Path | None) -> None:
    from policyguard import Guard

    with Guard.load("core", store=store, cache=True) as guard:
        session = guard.session("s")
        for tool_call in workload:
            decision = session.check(tool_call.tool, tool_call.args)
            if tool_call.error is None:
                session.record(decision, result=tool_call.result)
            else:
                session.record(decision, error=tool_call.error)


def _call_floor(workload: list[Call], contender: str, lines: Path) -> None:
    from benchmarks.floor import Floor, discard, open_appender

    write = discard if contender == CHAINED else None
    if contender == LINES:
        write = open_appender(str(lines))
    floor = Floor(write, line_on_check=contender == LINES)
    for tool_call in workload:
        floor.record(floor.check(tool_call.tool, tool_call.args), tool_call.error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", nargs=2, metavar=("CONTENDER", "CALLS"), help="what is counted")
    options = parser.parse_args()
    if options.make:
        contender, calls = options.make
        _run_calls(contender, int(calls))
        return
    from benchmarks.measure import Report, table

    report = Report("instructions", "Instructions per call (check and record)")
    try:
        counts = count()
    except CannotCountError as error:
        report.add(f"Not counted: {error}.")
        report.write()
        return
    limits = max_ratios()
    rows = []
    for contender, calls in counts.calls.items():
        ratio = f"{counts.ratio(contender):.2f}" if contender in limits else "–"
        rows.append((contender, f"{calls:,.0f}", ratio, limits.get(contender, "–")))
    report.add(table(["contender", "instructions", "ours ÷ this", "at most"], rows))
    report.figures = dict(counts.calls)
    report.write()


if __name__ == "__main__":
    main()
