"""Processes with one store share its budgets, even when killed, stopped or forked."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policyguard import Guard

# Where many programs run, whoever holds the lock may have to wait for the processor: no test of
# these is about how long a store may be locked.
SCRIPT_START = """
import os, sys, time
from policyguard import Guard
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
folder = sys.argv[1]
caps = Caps(constraints=1000, grants=1000, evidence=1000, anchors=1000)
store = SqliteStore(folder + "/state/store.db", caps=caps, timeout=600)
guard = Guard.load(folder + "/policy.yaml", store=store)
session = guard.session(sys.argv[2], project="p")
print("up", flush=True)
sys.stdin.readline()

def drain(max_calls, tool="tool"):
    count = 0
    for number in range(max_calls):
        decision = session.check(tool, {"n": number})
        count += decision.allowed
        if decision.allowed and number % 2:
            session.record(decision, result="fine")
    return count
"""

# The log holds one byte per question and answer, even if the process is killed.
LOGGING_SCRIPT = """
log = os.open(folder + "/log-" + sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
refused = 0
while refused < 3:
    os.write(log, b"?")
    decision = session.check("tool", {})
    if decision.errors:
        os.write(log, b"!")
        raise SystemExit(decision.errors[0].error)
    os.write(log, b"+" if decision.allowed else b"-")
    refused += not decision.allowed
    if decision.allowed:
        session.record(decision, result="", cost=0.001)
print(refused, flush=True)
"""


class Workspace:
    """A policy, a store, and the processes that use them."""

    def __init__(self, folder: Path, budgets: str) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        self.guards: list[Guard] = []
        (folder / "policy.yaml").write_text(
            f"policyguard: 1\nname: shop\njournal: {{durability: memory}}\nbudgets: {budgets}\n"
        )

    def start(self, name: str, code: str) -> subprocess.Popen[str]:
        """Start a process that waits for a line before it makes calls."""
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT_START + code, str(self.folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def wait_until_ready(self, *processes: subprocess.Popen[str]) -> None:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"

    def release(self, *processes: subprocess.Popen[str]) -> None:
        """Let processes make their calls."""
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def stop_outside_of_transactions(self, process: subprocess.Popen[str]) -> None:
        """Stop a process, but not while it holds the database's lock: nobody could write then."""
        database = sqlite3.connect(self.folder / "state" / "store.db", timeout=0)
        for _ in range(1000):
            process.send_signal(signal.SIGSTOP)
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.001)
            else:
                database.execute("ROLLBACK")
                break
        database.close()

    def read_count(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        return int(process.stdout.readline())

    def wait_for_log(self, size: int) -> None:
        """Wait until the logs hold that many bytes."""
        while sum(file.stat().st_size for file in self.folder.glob("log-*")) < size:
            time.sleep(0.0005)

    def count_lines_of_logs(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.folder.glob("log-*"))

    def guard(self) -> Guard:
        store = self.folder / "state" / "store.db"
        self.guards.append(Guard.load(self.folder / "policy.yaml", store=store))
        return self.guards[-1]

    def drain(self, name: str = "last", max_calls: int = 2_000) -> int:
        session = self.guard().session(name, project="p")
        return sum(session.check("tool", {"n": n}).allowed for n in range(max_calls))

    def used(self, budget: str = "budgets/b") -> float:
        guard = self.guard()
        session = guard.session("looks", project="p")
        session.preview("tool", {})
        usage = guard._state.evaluator_state.ledger.get(budget, "p")
        session.end()
        return usage.used / 1e9


@pytest.fixture
def open_workspace(tmp_path: Path) -> Iterator[Callable[[str], Workspace]]:
    workspaces: list[Workspace] = []

    def open_in(budgets: str) -> Workspace:
        workspaces.append(Workspace(tmp_path, budgets))
        return workspaces[-1]

    yield open_in
    for process in (process for workspace in workspaces for process in workspace.running):
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@pytest.fixture
def workspace(
    open_workspace: Callable[[str], Workspace], request: pytest.FixtureRequest
) -> Workspace:
    return open_workspace(getattr(request, "param", "{b: {calls: 1000, per: project}}"))


@pytest.mark.parametrize(
    ("process_count", "calls"), [(4, 400), pytest.param(8, 10_000, marks=pytest.mark.slow)]
)
def test_processes_share_a_limit_exactly(
    open_workspace: Callable[[str], Workspace], process_count: int, calls: int
) -> None:
    limit = process_count * calls // 2 + 1
    workspace = open_workspace(f"{{b: {{calls: {limit}, per: project}}}}")
    processes = [
        workspace.start(f"s{n}", f"print(drain({calls}), flush=True)") for n in range(process_count)
    ]
    workspace.wait_until_ready(*processes)
    workspace.release(*processes)
    admitted = [workspace.read_count(process) for process in processes]
    for process in processes:
        process.communicate()
    assert sum(admitted) == limit
    assert workspace.used() == limit
    assert workspace.drain(max_calls=3) == 0


@pytest.mark.parametrize(
    ("process_count", "kills", "limit"),
    [(3, 2, 3_000), pytest.param(8, 60, 80_000, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("window", ["", ", within: 30d"])
def test_killed_processes_neither_lose_nor_exceed_the_budget(
    open_workspace: Callable[[str], Workspace],
    process_count: int,
    kills: int,
    limit: int,
    window: str,
) -> None:
    workspace = open_workspace(
        f"{{b: {{calls: {limit}, per: project{window}}}, c: {{cost: 1000, per: project}}}}"
    )
    rng = random.Random(limit)  # noqa: S311 - which to kill when is no secret
    waiting = [workspace.start(f"s{n}", LOGGING_SCRIPT) for n in range(process_count + kills)]
    workspace.wait_until_ready(*waiting)
    running = [waiting.pop() for _ in range(process_count)]
    workspace.release(*running)
    for kill in range(kills):
        # In the first half, before any process has finished.
        workspace.wait_for_log(limit * (kill + 1) // (2 * kills + 2))
        killed = running.pop(rng.randrange(process_count))
        killed.kill()
        killed.communicate()
        running.append(waiting.pop())
        workspace.release(running[-1])
    for process in running:
        assert workspace.read_count(process) == 3
    logs = [file.read_bytes() for file in workspace.folder.glob("log-*")]
    admitted = sum(log.count(b"+") for log in logs)
    unanswered = sum(log.endswith(b"?") for log in logs)  # killed before an answer
    assert not any(b"!" in log for log in logs)
    assert sum(log.endswith(b"-") for log in logs) == process_count, "the others were in the middle"
    assert admitted <= limit <= admitted + unanswered
    assert workspace.used() == limit
    assert workspace.drain(max_calls=3) == 0
    # A call that was admitted last may have been killed before its cost was recorded.
    spent = round(workspace.used("budgets/c") * 1000)
    assert admitted - kills <= spent <= admitted


def test_unused_lease_of_a_sleeping_process_is_reclaimed(workspace: Workspace) -> None:
    process = workspace.start("asleep", "print(drain(5), flush=True); time.sleep(600)")
    workspace.wait_until_ready(process)
    workspace.release(process)
    assert workspace.read_count(process) == 5
    assert workspace.drain() == 995


def test_stopped_process_continues_with_the_remaining_budget(workspace: Workspace) -> None:
    stopped = workspace.start(
        "stopped", "print(drain(5), flush=True); print(drain(900), flush=True)"
    )
    workspace.wait_until_ready(stopped)
    workspace.release(stopped)
    for _ in range(50):  # in the middle of its calls
        time.sleep(0.001)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(0.001)
        stopped.send_signal(signal.SIGCONT)
    workspace.stop_outside_of_transactions(stopped)
    rest = workspace.drain(max_calls=2000)
    stopped.send_signal(signal.SIGCONT)
    assert workspace.read_count(stopped) + workspace.read_count(stopped) + rest == 1000


def test_stopped_process_does_not_block_others(workspace: Workspace) -> None:
    stopped = workspace.start(
        "stopped",
        "print(drain(50), flush=True); sys.stdin.readline(); print(drain(2000), flush=True)",
    )
    workspace.wait_until_ready(stopped)
    workspace.release(stopped)
    first = workspace.read_count(stopped)
    workspace.stop_outside_of_transactions(stopped)
    rest = workspace.drain(max_calls=2000)
    assert first + rest == 1000
    stopped.send_signal(signal.SIGCONT)
    assert stopped.stdin is not None
    stopped.stdin.write("\n")
    stopped.stdin.flush()
    assert workspace.read_count(stopped) == 0


def test_forked_child_charges_its_own_calls(workspace: Workspace) -> None:
    process = workspace.start(
        "forking",
        """
first = drain(20)
pid = os.fork()
if not pid:
    session = guard.session("child", project="p")
    drain(300)
    os._exit(0)
second = drain(300)
os.waitpid(pid, 0)
print(first + second, flush=True)
""",
    )
    workspace.wait_until_ready(process)
    workspace.release(process)
    assert workspace.read_count(process) == 320
    assert workspace.drain() == 1000 - 320 - 300


@pytest.mark.parametrize("workspace", ["{b: {concurrent: 4, per: project}}"], indirect=True)
def test_dead_processes_hold_no_slots(workspace: Workspace) -> None:
    living, dead = (
        workspace.start(
            name,
            "print(sum(session.check('tool', {'n': n}).allowed for n in range(2)), "
            "flush=True); time.sleep(600)",
        )
        for name in ("alive", "dead")
    )
    workspace.wait_until_ready(living, dead)
    workspace.release(living, dead)
    assert workspace.read_count(living) + workspace.read_count(dead) == 4
    assert workspace.drain("early", max_calls=3) == 0
    dead.kill()
    dead.communicate()
    assert workspace.drain(max_calls=5) == 2


@pytest.mark.parametrize(
    "workspace", ["{b: {cost: 1.0, per: project, reserve: 0.25}}"], indirect=True
)
def test_reservations_of_a_dead_process_are_refunded_but_its_usage_stays(
    workspace: Workspace,
) -> None:
    dead = workspace.start(
        "dead",
        """
session.record(session.check("tool", {}), result="", cost=0.5)
print(sum(session.check("tool", {"n": n}).allowed for n in range(4)), flush=True)
time.sleep(600)
""",
    )
    workspace.wait_until_ready(dead)
    workspace.release(dead)
    assert workspace.read_count(dead) == 2
    assert workspace.drain("early", max_calls=2) == 0
    dead.kill()
    dead.communicate()
    assert workspace.drain(max_calls=5) == 2
    assert workspace.used() == 0.5 + 0.5, "the reservation of this process is held"


@pytest.mark.parametrize("workspace", ["{b: {calls: 60, per: project, within: 1s}}"], indirect=True)
def test_no_window_exceeds_the_limit(workspace: Workspace) -> None:
    code = """
import select
log = os.open(folder + "/log-" + sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
while not select.select([sys.stdin], [], [], 0)[0]:
    before = time.time_ns()
    if session.check("tool", {}, at=before).allowed:
        os.write(log, b"%d %d\\n" % (before, time.time_ns()))
    time.sleep(0.002)
print(0, flush=True)
"""
    processes = [workspace.start(f"s{n}", code) for n in range(3)]
    workspace.wait_until_ready(*processes)
    workspace.release(*processes)
    deadline = time.monotonic() + 20
    while workspace.count_lines_of_logs() < 120 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)  # in which the second window is full
    workspace.release(*processes)
    for process in processes:
        workspace.read_count(process)
    intervals = [
        tuple(int(time) for time in line.split())
        for file in workspace.folder.glob("log-*")
        for line in file.read_text().splitlines()
    ]
    second = 1_000_000_000
    for window_start, _ in intervals:  # even if an answer arrived late
        inside = [
            (asked, answered)
            for asked, answered in intervals
            if window_start <= asked and answered < window_start + second
        ]
        assert len(inside) <= 60
    assert len(intervals) >= 120, "expired calls free the window"


def test_full_disk_is_reported(open_workspace: Callable[[str], Workspace]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    workspace = open_workspace("{b: {calls: 10000, per: project}}")
    (workspace.folder / "state").mkdir(mode=0o700)
    code = """
import subprocess
for _ in range(3):
    assert session.check("tool", {}).allowed
with open(folder + "/state/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
import itertools
other = guard.session("other", project="q")
for number in itertools.count(1):
    decision = other.check("tool", {"n": number})
    if decision.errors:
        break
print(decision.allowed, decision.errors[0].error, flush=True)
os.unlink(folder + "/state/filler")
count = sum(other.check("tool", {"n": n}).allowed for n in range(10_001))
print(count + number - 1, flush=True)
"""
    script = workspace.folder / "script.py"
    script.write_text(SCRIPT_START.replace("sys.stdin.readline()", "") + code)
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f"mount -t tmpfs -o size=1m,mode=700 tmpfs {workspace.folder}/state && "
            f"exec {sys.executable} {script} {workspace.folder} s",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("disks cannot be mounted here")
    refusal, count = done.stdout.splitlines()[1:]
    assert refusal.startswith("False"), done.stderr
    assert "make room" in refusal or "see that there is room" in refusal
    assert int(count) == 10_000
