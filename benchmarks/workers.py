"""What a second worker of `simulate` gains, beside two processes that share nothing.

    python -m benchmarks.workers [--quick] [FORMAT …]

The recorded runs of a format (`POLICYGUARD_TRACES`) are copied until they take a while; of our own
format (`policyguard`) sessions are generated, in two files and in one that workers share by lines.
By turns they are replayed by one worker, by two, and by two processes at once that get half of them
each: what a machine has for a second worker depends on what else runs on it. Each run is the whole
command; the start, with as many workers, that of few sessions.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.measure import Report, Spread, table
from benchmarks.replay import TRACES, formats, write_trace

ONE, TWO, APART = "one worker", "two workers", "two processes"
START, START_TWO = "start", "start of two"
HALVES = ("even", "odd")
OWN, OWN_SHARED = "policyguard", "policyguard, one file"
WHOLE = "whole.jsonl"
OWN_LINES = 400_000


def write_sessions(folder: Path, lines: int) -> None:
    """Write sessions in our own format: two halves and a few into folders, and one file of all."""
    for name, count in ((HALVES[0], lines // 2), (HALVES[1], lines // 2), (START, 1)):
        place = folder / name
        place.mkdir()
        write_trace(place / f"{name}.jsonl", count)
    with (folder / WHOLE).open("wb") as whole:
        for half in HALVES:
            whole.write((folder / half / f"{half}.jsonl").read_bytes())


def copy_runs(files: list[Path], folder: Path, size: int) -> None:
    """Fill three folders with copies: two halves of `size` bytes together, and one copy."""
    copies = max(2, size // sum(file.stat().st_size for file in files))
    places = [folder / HALVES[number % 2] / f"{number:04}" for number in range(copies)]
    for place in (*places, folder / START):
        for file in files:
            target = place / file.relative_to(TRACES)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def run_at_once(*commands: list[str]) -> float:
    """Run commands at the same time; return the seconds until all have ended."""
    start = time.perf_counter()
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]
    for process in running:
        _, errors = process.communicate()
        if process.returncode not in (0, 1):
            raise RuntimeError(errors.decode("utf-8", "replace"))
    return time.perf_counter() - start


def simulate(workers: int, *folders: Path) -> list[str]:
    """Return the command that replays folders."""
    command = [sys.executable, "-m", "policyguard", "simulate", *map(str, folders)]
    return [*command, "--policy", "core", "--format", "json", "--workers", str(workers)]


def start(workers: int, folder: Path) -> list[str]:
    """Return the command that replays few files with so many workers, though it takes longer."""
    files = [str(file) for file in sorted(folder.rglob("*")) if file.is_file()]
    return [sys.executable, "-m", "benchmarks.replay", "--replay", str(workers), *files]


def measure(folder: Path, rounds: int, *, shared: bool) -> dict[str, list[float]]:
    """Return the seconds of each contender's runs; if `shared`, workers read one file of all."""
    halves = [folder / half for half in HALVES]
    whole = [folder / WHOLE] if shared else halves
    contenders = {
        START: [start(1, folder / START)],
        START_TWO: [start(2, folder / START)],
        ONE: [simulate(1, *whole)],
        TWO: [simulate(2, *whole)],
        APART: [simulate(1, half) for half in halves],
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, commands in contenders.items():
            seconds[name].append(run_at_once(*commands))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less to replay, fewer rounds")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="default: all")
    options = parser.parse_args()
    share = 4 if options.quick else 1
    report = Report("workers", "A second worker")
    rows = []
    files_by_format: dict[str, list[Path]] = {OWN: [], OWN_SHARED: [], **formats()}
    for name, files in files_by_format.items():
        if options.formats and name not in options.formats:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if name in (OWN, OWN_SHARED):
                write_sessions(folder, OWN_LINES // share)
            else:
                copy_runs(files, folder, 240_000_000 // share)
            rounds = 2 if options.quick else 4
            seconds = measure(folder, rounds, shared=name == OWN_SHARED)
        rows.append((name, *_row(seconds)))
        report.figures[name] = dict(seconds)
    heads = ["format", "one worker s", "two s", "gain", "beyond the start"]
    report.add(table([*heads, "gain of two processes", "two workers ÷ two processes"], rows))
    report.write()


def _row(seconds: dict[str, list[float]]) -> list[Spread]:
    starts = list(zip(seconds[START], seconds[START_TWO], strict=True))
    runs = list(zip(seconds[ONE], seconds[TWO], seconds[APART], strict=True))
    return [
        Spread.of(seconds[ONE]),
        Spread.of(seconds[TWO]),
        Spread.of(one / two for one, two, _ in runs),
        Spread.of(
            (one - start_one) / (two - start_two)
            for (start_one, start_two), (one, two, _) in zip(starts, runs, strict=True)
        ),
        Spread.of(one / apart for one, _, apart in runs),
        Spread.of(two / apart for _, two, apart in runs),
    ]


if __name__ == "__main__":
    main()
