"""What works where a system has neither forks nor POSIX file locks, as on Windows.

A child process runs with these taken away; that the rest of Windows is as expected is not tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WITHOUT_POSIX = """
import asyncio, multiprocessing, os, pathlib, sqlite3, subprocess, sys, tempfile, time, types
import click, msgspec, importlib.util
for module in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix"):
    sys.modules[module] = None
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "fcntl" else find_spec(name, *rest)
for name in dir(os):
    if name in (
        "register_at_fork", "fork", "forkpty", "geteuid", "getuid", "getegid", "pread", "O_CLOEXEC",
        "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "fchmod", "chown", "sysconf", "mkfifo",
    ):
        delattr(os, name)
for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime", "clock_gettime_ns"):
    delattr(time, name)
os.supports_dir_fd = os.supports_effective_ids = os.supports_fd = set()
"""

POLICY = """
policyguard: 1
name: p
budgets: {b: {calls: 2}}
"""
TESTS = """
policy: policy.yaml
tests: [{name: three, steps: [{call: {a: {}}, times: 2}, {call: {c: {}}, expect: block}]}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy, its tests and a trace."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "tests.yaml").write_text(TESTS)
    (folder / "trace.jsonl").write_bytes((ROOT / "docs/demo/trace.jsonl").read_bytes())
    return folder


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environment.pop("POLICYGUARD_CACHE", None)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_POSIX + code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_guard_without_a_store(project: Path) -> None:
    done = run(
        """
from policyguard import CallRefused, Guard
with Guard.load("policy.yaml") as guard:
    session = guard.session("s")
    for tool in "ab":
        session.record(session.check(tool, {}), result="x")
    print(session.check("c", {}).allowed, session.run)
    async def main():
        async with guard.session("t") as other:
            return await other.arun("a", {}, lambda: asyncio.sleep(0, "done"))
    print(asyncio.run(main()))
    print(guard.session("u").run("a", {}, lambda: "ran"))
""",
        project,
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[0].startswith("False")
    assert done.stdout.split("\n")[1:3] == ["done", "ran"]


@pytest.mark.parametrize(
    "code",
    [
        "from policyguard import Guard; Guard.load('core', store='state.db')",
        "from policyguard.store.sqlite.store import SqliteStore; SqliteStore('s.db', caps=None)",
        "from policyguard import Guard; from policyguard.store.memory.store import MemoryStore; "
        "from policyguard.store.protocol import Caps; "
        "store = MemoryStore(caps=Caps(constraints=1, grants=1, evidence=1, anchors=1)); "
        "Guard.load('core', store=store, journal='journal', cache=False)",
    ],
)
def test_what_lasts_is_refused_before_anything_is_written(code: str, tmp_path: Path) -> None:
    done = run(code, tmp_path)
    assert "needs file locks of POSIX systems, which this one lacks; keep state in memory" in (
        done.stderr
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["lint", "policy.yaml"], "no issues found"),
        (["simulate", "trace.jsonl", "--policy", "policy.yaml", "--workers", "2"], "calls by"),
        (["explain", "yaml/encoding"], "UTF-8"),
        (["journal", "verify", "."], ""),
        (["constraints", "list"], "needs file locks"),
        *(
            pytest.param(arguments, shown, marks=pytest.mark.slow)
            for arguments, shown in (
                (["test", "tests.yaml"], "1 passed"),
                (["simulate", "trace.jsonl", "--policy", "policy.yaml"], "calls by effect"),
                (["policy", "show", "policy.yaml"], "budgets"),
                (["init"], "extends"),
                (["traces", "stats", "trace.jsonl"], "sessions"),
            )
        ),
    ],
)
def test_commands(arguments: list[str], shown: str, project: Path) -> None:
    done = run(f"from policyguard.cli import main\nmain({arguments!r})", project)
    assert "Traceback" not in done.stderr, done.stderr
    assert shown in done.stdout + done.stderr
