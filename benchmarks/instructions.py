"""Instructions of a check and a record, ours and the floor's, counted by callgrind.

    python -m benchmarks.instructions

Time is noise on a shared machine; instructions are nearly not. A process starts, takes `core` out
of the cache and makes a number of calls; the difference between two numbers of calls is what the
calls between them cost. The start varies by some millions of instructions, so that difference must
be long.
A test holds the ratio to the floor below the bound in `instructions.json`.
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

from benchmarks.calls import Call, call

SHORT, LONG = 1_000, 5_000
FAILING = 2
"""Of a hundred calls."""
NOTHING = "nothing"
"""Makes the calls, and puts them to nobody: what that costs is taken off."""
CHAINED = "floor, one chained line a call"
LINES = "floor, chain and lines"
JOURNALLED = "core, SQLite and journal"
OURS = {"floor": "core", CHAINED: "core", LINES: JOURNALLED}
"""What is held against a floor."""
CONTENDERS = ("core", JOURNALLED, *OURS)
BOUNDS = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).resolve().parents[1]


class CannotCountError(Exception):
    """There is nothing here to count with; the message says why."""


@dataclass(frozen=True)
class Counted:
    """Instructions a call (check and record), by contender."""

    calls: dict[str, float]

    def ratio(self, floor: str) -> float:
        """How many times a floor's instructions ours are."""
        return self.calls[OURS[floor]] / self.calls[floor]


def bounds() -> dict[str, float]:
    """How many times a floor's instructions ours may be, by floor."""
    read: dict[str, float] = json.loads(BOUNDS.read_text("utf-8"))["at_most"]
    return read


def count() -> Counted:
    """Count. Raises `CannotCountError` where valgrind is absent or fails."""
    if shutil.which("valgrind") is None:
        raise CannotCountError("valgrind is not installed")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "POLICYGUARD_CACHE": cache}
        # Every module, and `core`, are compiled before: that would be counted too.
        for contender in CONTENDERS:
            subprocess.run(_command(contender, 10), cwd=ROOT, env=environment, check=True)
        short, long = (
            {one: _instructions(one, calls, environment) for one in (NOTHING, *CONTENDERS)}
            for calls in (SHORT, LONG)
        )
    taken = {one: (long[one] - short[one]) / (LONG - SHORT) for one in long}
    return Counted({one: taken[one] - taken[NOTHING] for one in CONTENDERS})


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


def _make(contender: str, calls: int) -> None:
    """What is counted: so many checks and records."""
    made = [call(number, FAILING) for number in range(calls)]
    with tempfile.TemporaryDirectory() as folder:
        if contender in OURS.values():
            _through_ours(made, Path(folder) / "store.db" if contender == JOURNALLED else None)
        elif contender in OURS:
            _through_floor(made, contender, Path(folder) / "lines")


def _through_ours(made: list[Call], store: Path | None) -> None:
    from policyguard import Guard

    with Guard.load("core", store=store, cache=True) as guard:
        session = guard.session("s")
        for one in made:
            decision = session.check(one.tool, one.args)
            if one.error is None:
                session.record(decision, result=one.result)
            else:
                session.record(decision, error=one.error)


def _through_floor(made: list[Call], contender: str, lines: Path) -> None:
    from benchmarks.floor import Floor, appending, nowhere

    write = nowhere if contender == CHAINED else None
    if contender == LINES:
        write = appending(str(lines))
    floor = Floor(write, twice=contender == LINES)
    for one in made:
        floor.record(floor.check(one.tool, one.args), one.error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", nargs=2, metavar=("CONTENDER", "CALLS"), help="what is counted")
    options = parser.parse_args()
    if options.make:
        contender, calls = options.make
        _make(contender, int(calls))
        return
    from benchmarks.measure import Report, table

    report = Report("instructions", "Instructions a call (check and record)")
    try:
        counted = count()
    except CannotCountError as error:
        report.add(f"Not counted: {error}.")
        report.write()
        return
    most = bounds()
    rows = []
    for one, calls in counted.calls.items():
        ratio = f"{counted.ratio(one):.2f}" if one in most else "–"
        rows.append((one, f"{calls:,.0f}", ratio, most.get(one, "–")))
    report.add(table(["contender", "instructions", "ours ÷ this", "at most"], rows))
    report.figures = dict(counted.calls)
    report.write()


if __name__ == "__main__":
    main()
