"""Processes that share a store share its budgets: killed, stopped, asleep or forked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policyguard import Guard

PREAMBLE = """
import os, sys, time
from policyguard import Guard
folder = sys.argv[1]
guard = Guard.load(folder + "/policy.yaml", store=folder + "/state/store.db")
session = guard.session(sys.argv[2], project="p")
print("up", flush=True)
sys.stdin.readline()

def drain(most, tool="tool"):
    count = 0
    for number in range(most):
        decision = session.check(tool, {"n": number})
        count += decision.allowed
        if decision.allowed and number % 2:
            session.record(decision, result="fine")
    return count
"""

# What it asks and is answered stands in its log, one byte each, also when it is killed.
LOGGED = """
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


class Shop:
    """A policy, a store, and processes that use them."""

    def __init__(self, folder: Path, budgets: str) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        self.guards: list[Guard] = []
        (folder / "policy.yaml").write_text(
            f"policyguard: 1\nname: shop\njournal: {{durability: memory}}\nbudgets: {budgets}\n"
        )

    def start(self, name: str, code: str) -> subprocess.Popen[str]:
        """A process that waits for a line before it begins."""
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, str(self.folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def up(self, *processes: subprocess.Popen[str]) -> None:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"

    def go(self, *processes: subprocess.Popen[str]) -> None:
        """Let them begin."""
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

    def said(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        return int(process.stdout.readline())

    def logged(self, size: int) -> None:
        """Wait until so many bytes stand in the logs."""
        while sum(file.stat().st_size for file in self.folder.glob("log-*")) < size:
            time.sleep(0.0005)

    def guard(self) -> Guard:
        store = self.folder / "state" / "store.db"
        self.guards.append(Guard.load(self.folder / "policy.yaml", store=store))
        return self.guards[-1]

    def drain(self, name: str = "last", most: int = 10_000) -> int:
        session = self.guard().session(name, project="p")
        return sum(session.check("tool", {"n": number}).allowed for number in range(most))

    def used(self, budget: str = "budgets/b") -> float:
        guard = self.guard()
        session = guard.session("looks", project="p")
        session.preview("tool", {})
        account = guard._state.engine_state.ledger.get(budget, "p")
        session.end()
        return account.used / 1e9


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Shop]]:
    shops: list[Shop] = []

    def make(budgets: str) -> Shop:
        shops.append(Shop(tmp_path, budgets))
        return shops[-1]

    yield make
    for process in (process for shop in shops for process in shop.running):
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


@pytest.fixture
def shop(opened: Callable[[str], Shop], request: pytest.FixtureRequest) -> Shop:
    return opened(getattr(request, "param", "{b: {calls: 1000, per: project}}"))


@pytest.mark.parametrize(
    ("number", "calls"), [(4, 400), pytest.param(8, 10_000, marks=pytest.mark.slow)]
)
def test_processes_together_are_let_through_as_often_as_the_limit_says(
    opened: Callable[[str], Shop], number: int, calls: int
) -> None:
    limit = number * calls // 2 + 1
    shop = opened(f"{{b: {{calls: {limit}, per: project}}}}")
    processes = [shop.start(f"s{n}", f"print(drain({calls}), flush=True)") for n in range(number)]
    shop.up(*processes)
    shop.go(*processes)
    admitted = [shop.said(process) for process in processes]
    for process in processes:
        process.communicate()
    assert sum(admitted) == limit
    assert shop.used() == limit
    assert shop.drain(most=3) == 0


@pytest.mark.parametrize(
    ("number", "kills", "limit"),
    [(3, 4, 6_000), pytest.param(8, 60, 80_000, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("within", ["", ", within: 30d"])
def test_processes_that_are_killed_lose_and_overdraw_nothing(
    opened: Callable[[str], Shop], number: int, kills: int, limit: int, within: str
) -> None:
    shop = opened(
        f"{{b: {{calls: {limit}, per: project{within}}}, c: {{cost: 1000, per: project}}}}"
    )
    chance = random.Random(limit)  # noqa: S311 - which to kill when is no secret
    ready = [shop.start(f"s{n}", LOGGED) for n in range(number + kills)]
    shop.up(*ready)
    running = [ready.pop() for _ in range(number)]
    shop.go(*running)
    for kill in range(kills):
        shop.logged(limit * (kill + 1) // (2 * kills + 2))  # in the first half: none is done
        victim = running.pop(chance.randrange(number))
        victim.kill()
        victim.communicate()
        running.append(ready.pop())
        shop.go(running[-1])
    for process in running:
        assert shop.said(process) == 3
    logs = [file.read_bytes() for file in shop.folder.glob("log-*")]
    admitted = sum(log.count(b"+") for log in logs)
    doubtful = sum(log.endswith(b"?") for log in logs)  # killed while they were asking
    assert not any(b"!" in log for log in logs)
    assert sum(log.endswith(b"-") for log in logs) == number, "the others were in the middle"
    assert admitted <= limit <= admitted + doubtful
    assert shop.used() == limit
    assert shop.drain(most=3) == 0
    # A call that was admitted last may have been killed before its cost was recorded.
    spent = round(shop.used("budgets/c") * 1000)
    assert admitted - kills <= spent <= admitted


def test_what_a_process_has_on_lease_and_never_uses_is_not_lost(shop: Shop) -> None:
    sleeper = shop.start("asleep", "print(drain(5), flush=True); time.sleep(600)")
    shop.up(sleeper)
    shop.go(sleeper)
    assert shop.said(sleeper) == 5
    assert shop.drain() == 995


def test_a_process_that_was_stopped_goes_on_with_what_is_left(shop: Shop) -> None:
    stopped = shop.start("stopped", "print(drain(5), flush=True); print(drain(900), flush=True)")
    shop.up(stopped)
    shop.go(stopped)
    for _ in range(50):  # somewhere in the middle of its calls
        time.sleep(0.001)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(0.001)
        stopped.send_signal(signal.SIGCONT)
    stopped.send_signal(signal.SIGSTOP)
    rest = shop.drain(most=2000)
    stopped.send_signal(signal.SIGCONT)
    assert shop.said(stopped) + shop.said(stopped) + rest == 1000


def test_a_stopped_process_does_not_hold_up_others(shop: Shop) -> None:
    stopped = shop.start(
        "stopped",
        "print(drain(50), flush=True); sys.stdin.readline(); print(drain(2000), flush=True)",
    )
    shop.up(stopped)
    shop.go(stopped)
    first = shop.said(stopped)
    stopped.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    rest = shop.drain(most=2000)
    assert time.monotonic() - begun < 5
    assert first + rest == 1000
    stopped.send_signal(signal.SIGCONT)
    assert stopped.stdin is not None
    stopped.stdin.write("\n")
    stopped.stdin.flush()
    assert shop.said(stopped) == 0


def test_a_forked_child_draws_for_itself(shop: Shop) -> None:
    forking = shop.start(
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
    shop.up(forking)
    shop.go(forking)
    assert shop.said(forking) == 320
    assert shop.drain() == 1000 - 320 - 300


@pytest.mark.parametrize("shop", ["{b: {concurrent: 4, per: project}}"], indirect=True)
def test_the_dead_hold_no_places(shop: Shop) -> None:
    alive, dead = (
        shop.start(
            name,
            "print(sum(session.check('tool', {'n': n}).allowed for n in range(2)), "
            "flush=True); time.sleep(600)",
        )
        for name in ("alive", "dead")
    )
    shop.up(alive, dead)
    shop.go(alive, dead)
    assert shop.said(alive) + shop.said(dead) == 4
    assert shop.drain("early", most=3) == 0
    dead.kill()
    dead.communicate()
    assert shop.drain(most=5) == 2


@pytest.mark.parametrize("shop", ["{b: {cost: 1.0, per: project, reserve: 0.25}}"], indirect=True)
def test_what_a_dead_process_reserved_comes_back_and_what_it_used_does_not(shop: Shop) -> None:
    dead = shop.start(
        "dead",
        """
session.record(session.check("tool", {}), result="", cost=0.5)
print(sum(session.check("tool", {"n": n}).allowed for n in range(4)), flush=True)
time.sleep(600)
""",
    )
    shop.up(dead)
    shop.go(dead)
    assert shop.said(dead) == 2
    assert shop.drain("early", most=2) == 0
    dead.kill()
    dead.communicate()
    assert shop.drain(most=5) == 2
    assert shop.used() == 0.5 + 0.5, "what this process has reserved is held"


@pytest.mark.parametrize("shop", ["{b: {calls: 60, per: project, within: 1s}}"], indirect=True)
def test_a_window_never_has_more_than_the_limit(shop: Shop) -> None:
    code = """
log = os.open(folder + "/log-" + sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
end = time.monotonic() + 2.5
while time.monotonic() < end:
    before = time.time_ns()
    if session.check("tool", {}, at=before).allowed:
        os.write(log, b"%d %d\\n" % (before, time.time_ns()))
    time.sleep(0.002)
print(0, flush=True)
"""
    processes = [shop.start(f"s{n}", code) for n in range(3)]
    shop.up(*processes)
    shop.go(*processes)
    for process in processes:
        shop.said(process)
    spans = [
        tuple(int(time) for time in line.split())
        for file in shop.folder.glob("log-*")
        for line in file.read_text().splitlines()
    ]
    second = 1_000_000_000
    for begin, _ in spans:  # however late a process was told that it may go on
        assert sum(begin <= asked and told < begin + second for asked, told in spans) <= 60
    assert len(spans) >= 120, "what has left the window is free again"


def test_a_full_disk_is_told(opened: Callable[[str], Shop]) -> None:
    if os.geteuid() != 0:
        pytest.skip("a disk of one's own can be mounted by root only")
    shop = opened("{b: {calls: 100000, per: project}}")
    (shop.folder / "state").mkdir(mode=0o700)
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
count = sum(other.check("tool", {"n": n}).allowed for n in range(100_000))
print(count + number - 1, flush=True)
"""
    script = shop.folder / "script.py"
    script.write_text(PREAMBLE.replace("sys.stdin.readline()", "") + code)
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f"mount -t tmpfs -o size=1m,mode=700 tmpfs {shop.folder}/state && "
            f"exec {sys.executable} {script} {shop.folder} s",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no disk can be mounted here")
    told, count = done.stdout.splitlines()[1:]
    assert told.startswith("False"), done.stderr
    assert "make room" in told or "see that there is room" in told
    assert int(count) == 100_000
