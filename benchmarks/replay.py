"""The speed of `simulate` on recorded runs, and whether its memory grows with them.

    python -m benchmarks.replay [--quick]

Traces in our own format are generated: sessions of 200 varied calls, two lines per call. Other
formats are recorded runs (`POLICYGUARD_TRACES`, by default `../shared/traces` beside the project).
Each replay is a separate process, timed from when the policy is loaded.
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

from benchmarks.measure import Report, Spread, process_memory, table
from benchmarks.workload import Call, mixed_call
from policyguard import Guard
from policyguard.guard import Session
from policyguard.journal.format import encode
from policyguard.model.event import Event
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.workers import LocalProcesses
from policyguard.simulate.simulation import simulate
from policyguard.traces import Reader, TraceError, expand

TRACES = Path(
    os.environ.get("POLICYGUARD_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces")
)


def write_trace(file: Path, lines: int) -> int:
    """Write at least `lines` lines of our own format; return their number."""
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
            for index in range(number * 200, number * 200 + 200):
                _run_call(session, mixed_call(index, 5))
            session.end()
            number += 1
    return count


def _run_call(session: Session, call: Call) -> None:
    decision = session.check(call.tool, call.args)
    if decision.allowed:
        session.record(decision, result=None if call.error else call.result, error=call.error)


def replay(workers: int, files: Iterable[str]) -> dict[str, float]:
    """Replay files in this process; return seconds, events, and peak memory (MiB)."""
    job = Job(policies=("core",), files=tuple(map(Path, files)))
    loaded = JobInputs.load(job)
    event_count = 0

    def count_events(done: int, events: int, note: str = "") -> None:
        nonlocal event_count
        event_count += events

    start = time.perf_counter()
    simulate(job, loaded, count_events, LocalProcesses(workers))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "events": event_count, "rss": process_memory("VmHWM") / 1024}


def run_isolated(workers: int, files: list[Path]) -> dict[str, float]:
    """Replay files in a separate process."""
    command = [sys.executable, "-m", "benchmarks.replay", "--replay", str(workers)]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def formats() -> dict[str, list[Path]]:
    """Return the recorded files of each format."""
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


def measure_own_format(report: Report, folder: Path, lines: int, rounds: int) -> None:
    """Measure lines per second, memory at two sizes, and workers."""
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    counts = {small: write_trace(small, lines // 8), large: write_trace(large, lines)}
    halves = [folder / "one.jsonl", folder / "two.jsonl"]
    for half in halves:
        counts[half] = write_trace(half, lines // 2)
    contenders = {
        "one file, an eighth": (1, [small]),
        "one file": (1, [large]),
        "two files of half": (1, halves),
        "two files of half, two workers": (2, halves),
        "one file, two workers": (2, [large]),
    }
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name, (workers, files) in contenders.items():
            results[name].append(run_isolated(workers, files))
    rows = []
    for name, (_, files) in contenders.items():
        line_count = sum(counts[file] for file in files)
        speed = Spread.of(line_count / one["seconds"] for one in results[name])
        memory = Spread.of(one["rss"] for one in results[name])
        rows.append((name, f"{line_count:,}", speed, f"{memory.median:.0f} MiB"))
        report.figures[name] = {"lines": line_count, "lines/s": speed.median, "rss": memory.median}
    report.add(f"Own JSONL, {rounds} rounds (with workers: the peak of the process that waits):")
    report.add(table(["replayed", "lines", "lines/s", "peak memory"], rows))


def measure_other_formats(report: Report, rounds: int) -> None:
    """Measure events per second of each importer."""
    files_by_format = formats()
    if not files_by_format:
        report.add(f"Other formats: skipped, no traces at `{TRACES.name}`.")
        return
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name, files in files_by_format.items():
            results[name].append(run_isolated(1, files))
    rows = []
    for name, files in files_by_format.items():
        size = sum(file.stat().st_size for file in files) / 1e6
        events = results[name][0]["events"]
        speed = Spread.of(one["events"] / one["seconds"] for one in results[name])
        megabytes = Spread.of(size / one["seconds"] for one in results[name])
        rows.append((name, len(files), f"{size:.2f}", f"{events:,.0f}", speed, megabytes))
        report.figures[name] = {
            "events": events,
            "events/s": speed.median,
            "MB/s": megabytes.median,
        }
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
        measure_own_format(report, Path(folder), 60_000 if options.quick else 400_000, 3)
    measure_other_formats(report, 1 if options.quick else 3)
    report.write()


if __name__ == "__main__":
    main()
