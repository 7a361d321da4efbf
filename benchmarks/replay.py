"""How fast `simulate` replays recorded runs, and whether its memory grows with them.

    python -m benchmarks.replay [--quick]

Own JSONL is made here: sessions of 200 varied calls, two lines a call. Other formats are read from
recorded runs (`POLICYGUARD_TRACES`, by default `../shared/traces` beside the project). Each replay
is a process of its own; what is timed begins when the policy is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from benchmarks.calls import Call, mixed
from benchmarks.measure import Report, Spread, kept, table
from policyguard import Guard
from policyguard.guard import Session
from policyguard.journal.format import encode
from policyguard.model.event import Event
from policyguard.simulate.job import Job, JobInputs
from policyguard.simulate.workers import run_parallel
from policyguard.traces import Reader, TraceError, expand

TRACES = Path(
    os.environ.get("POLICYGUARD_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces")
)


def written(file: Path, lines: int) -> int:
    """Write so many lines, or a few more, of our own format; returns how many."""
    count = 0
    with file.open("wb") as out:

        def write(event: Event) -> None:
            nonlocal count
            out.write(encode(event) + b"\n")
            count += 1

        guard = Guard.load("core", listener=write)
        number = 0
        while count < lines:
            session = guard.session(f"{file.stem}-{number}")
            for place in range(number * 200, number * 200 + 200):
                _made(session, mixed(place, 5))
            session.end()
            number += 1
    return count


def _made(session: Session, call: Call) -> None:
    decision = session.check(call.tool, call.args)
    if decision.allowed:
        session.record(decision, result=None if call.error else call.result, error=call.error)


def replay(workers: int, files: Iterable[str]) -> dict[str, float]:
    """Replay files in this process: seconds, events, and the most memory it had (MiB)."""
    job = Job(policies=("core",), files=tuple(map(Path, files)))
    loaded = JobInputs.load(job)
    met = 0

    def watch(done: int, events: int) -> None:
        nonlocal met
        met += events

    begun = time.perf_counter()
    run_parallel(workers, job, loaded, watch)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "events": met, "rss": kept("VmHWM") / 1024}


def apart(workers: int, files: list[Path]) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.replay", "--replay", str(workers)]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def formats() -> dict[str, list[Path]]:
    """The recorded files of each format."""
    found: dict[str, list[Path]] = defaultdict(list)
    try:
        for file in expand([TRACES]):
            for trace in Reader().iter_files(file):
                events = sum(1 for _ in trace)
                if trace.format is not None and events > 1:
                    found[trace.format].append(file)
    except TraceError:
        return {}
    return {name: list(dict.fromkeys(files)) for name, files in sorted(found.items())}


def own(report: Report, folder: Path, lines: int, rounds: int) -> None:
    """Lines a second, memory at two sizes, workers."""
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    counts = {small: written(small, lines // 8), large: written(large, lines)}
    halves = [folder / "one.jsonl", folder / "two.jsonl"]
    for half in halves:
        counts[half] = written(half, lines // 2)
    contenders = {
        "one file, an eighth": (1, [small]),
        "one file": (1, [large]),
        "two files of half": (1, halves),
        "two files of half, two workers": (2, halves),
        "one file, two workers": (2, [large]),
    }
    taken: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name, (workers, files) in contenders.items():
            taken[name].append(apart(workers, files))
    rows = []
    for name, (_, files) in contenders.items():
        whole = sum(counts[file] for file in files)
        speed = Spread.of(whole / one["seconds"] for one in taken[name])
        memory = Spread.of(one["rss"] for one in taken[name])
        rows.append((name, f"{whole:,}", speed, f"{memory.median:.0f} MiB"))
        report.figures[name] = {"lines": whole, "lines/s": speed.median, "rss": memory.median}
    report.add(f"Own JSONL, {rounds} rounds (with workers: the peak of the process that waits):")
    report.add(table(["replayed", "lines", "lines/s", "peak memory"], rows))


def recorded(report: Report, rounds: int) -> None:
    """Events a second of each importer."""
    known = formats()
    if not known:
        report.add(f"Other formats: left out, for there are no traces at `{TRACES.name}`.")
        return
    taken: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name, files in known.items():
            taken[name].append(apart(1, files))
    rows = []
    for name, files in known.items():
        size = sum(file.stat().st_size for file in files) / 1e6
        events = taken[name][0]["events"]
        speed = Spread.of(one["events"] / one["seconds"] for one in taken[name])
        bulk = Spread.of(size / one["seconds"] for one in taken[name])
        rows.append((name, len(files), f"{size:.2f}", f"{events:,.0f}", speed, bulk))
        report.figures[name] = {"events": events, "events/s": speed.median, "MB/s": bulk.median}
    report.add("Recorded runs of other formats, each format's files in one process:")
    report.add(table(["format", "files", "MB", "events", "events/s", "MB/s"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer lines and rounds")
    parser.add_argument("--replay", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        workers, *files = options.replay
        print(json.dumps(replay(int(workers), files)))
        return
    report = Report("replay", "Replay")
    with tempfile.TemporaryDirectory() as folder:
        own(report, Path(folder), 60_000 if options.quick else 400_000, 3)
    recorded(report, 1 if options.quick else 3)
    report.write()


if __name__ == "__main__":
    main()
