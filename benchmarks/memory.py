"""The memory of a session, and whether caps hold.

    python -m benchmarks.memory [--quick]

Bytes per session: Python's allocations (tracemalloc) after 1,000 varied calls under `core`, without
what all sessions share (the policy, the plans). Open sessions: resident memory, each measured in
its own process.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Report, process_memory, table
from benchmarks.rules import policy
from benchmarks.timing import time_session
from benchmarks.workload import Call, call, mixed_call
from policyguard import Guard
from policyguard.guard import Session

CALLS = 1_000
SESSIONS = 20
OPENED_SESSIONS = 100_000
TARGET = 16 * 1024
CallFactory = Callable[[int, int], Call]
"""Returns the call with a number; the second argument is the failures per hundred."""
_WORKLOADS: dict[str, CallFactory] = {"one tool": call, "five tools": mixed_call}


def bytes_per_session(make_call: CallFactory, failing: int) -> float:
    """Return the memory of one more session after its calls."""
    guard = Guard.load("core")
    _make_calls(guard, "before", make_call, failing, CALLS)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(SESSIONS):
        _make_calls(guard, f"s{number}", make_call, failing, CALLS)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / SESSIONS


def measure_open_sessions(cap: int, opened: int, calls: int) -> dict[str, float]:
    """Return the memory of the process in KiB with sessions opened, and how many are still open."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(policy(0, bounds=f"sessions: {cap}"), "utf-8")
        guard = Guard.load(file)
    _make_calls(guard, "before", call, 2, CALLS)
    before = process_memory("VmRSS")
    sessions = [
        weakref.ref(_make_calls(guard, f"s{number}", call, 2, calls)) for number in range(opened)
    ]
    gc.collect()
    alive = [session() for session in sessions]
    still_open = sum(session is not None and not session.closed for session in alive)
    return {"resident": process_memory("VmRSS"), "before": before, "open": still_open}


def _make_calls(
    guard: Guard, name: str, make_call: CallFactory, failing: int, calls: int
) -> Session:
    session = guard.session(name)
    timed = time_session(session)
    first = zlib.crc32(name.encode()) % 10**6
    for number in range(first, first + calls):
        timed(make_call(number, failing))
    return session


def _run_isolated(cap: int, opened: int, calls: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", "--live", *map(str, (cap, opened, calls))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sessions")
    parser.add_argument("--live", nargs=3, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.live:
        print(json.dumps(measure_open_sessions(*options.live)))
        return
    report = Report("memory", "Memory")
    rows: list[tuple[object, ...]] = []
    for name, make_call in _WORKLOADS.items():
        for failing in (0, 2, 100):
            grown = bytes_per_session(make_call, failing)
            report.figures[f"bytes per session, {name}, {failing} % fail"] = grown
            result = "met" if grown <= TARGET else "missed"
            rows.append((name, f"{failing} %", f"{grown / 1024:.1f} KiB", result))
    report.add(f"After {CALLS:,} varied calls under `core`, {SESSIONS} sessions:")
    report.add(table(["calls of", "failures", "per session", "16 KiB"], rows))
    opened = OPENED_SESSIONS // 10 if options.quick else OPENED_SESSIONS
    rows = []
    for cap in (opened, opened // 100):
        for calls in (1, 10):
            figures = _run_isolated(cap, opened, calls)
            grown = figures["resident"] - figures["before"]
            report.figures[f"{opened} opened, cap {cap}, {calls} calls each"] = figures
            per_session = grown / figures["open"]
            cells = (f"{opened:,}", f"{cap:,}", calls, f"{figures['open']:,.0f}")
            rows.append((*cells, f"{grown / 1024:.1f} MiB", f"{per_session:.1f} KiB"))
    report.add("Sessions opened one after the other under `bounds.sessions`; resident memory:")
    heads = "opened|cap|calls each|open at the end|grown by|per session"
    report.add(table(heads.split("|"), rows))
    report.write()


if __name__ == "__main__":
    main()
