"""With `durability: fsync`, all is on the disk before a call returns, as system calls show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

POLICY = """
policyguard: 1
name: durable
journal: {durability: DURABILITY}
budgets: {shared: {calls: 100, per: global}, window: {calls: 100, within: 1h, per: global}}
signatures: [{id: broken, pattern: broken, blame: agent}]
learn: {corroborate: 2, scope: project}
"""
PROGRAM = """
import os, sys
from policyguard import Guard
guard = Guard.load(sys.argv[1], store=sys.argv[2])
session = guard.session("s", project="p")
for number in range(4):
    decision = session.check("mail", {"to": "x"})
    os.write(1, b"checked\\n")
    if decision:
        session.record(decision, error="broken")
    os.write(1, b"recorded\\n")
session.end()
os.write(1, b"ended\\n")
"""
_CALL = re.compile(r"^\d+ +(\w+)\((\d+)<([^>]*)>(?:, \"([^\"\\]*))?")
_WRITES = ("write", "pwrite64", "writev", "ftruncate")


def trace(folder: Path, durability: str) -> list[tuple[str, str, str]]:
    """Run the program, and return its writes and syncs: system call, path, and what went to 1."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    policy, log = folder / "policy.yaml", folder / "calls.txt"
    policy.write_text(POLICY.replace("DURABILITY", durability))
    traced = f"trace={','.join(_WRITES)},fsync,fdatasync"
    store = folder / "state" / "store.db"
    command = [strace, "-f", "-y", "-e", traced, "-o", str(log)]
    command += [sys.executable, "-c", PROGRAM, str(policy), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    calls = []
    for line in log.read_text().splitlines():
        found = _CALL.match(line)
        if found is not None:
            name, descriptor, path, text = found.groups()
            calls.append((name, path, text if descriptor == "1" and text else ""))
    return calls


def dirty_files(calls: list[tuple[str, str, str]]) -> list[tuple[str, set[str]]]:
    """Return, for each line of output, which files of the state were written and not synced."""
    dirty: set[str] = set()
    found = []
    for name, path, text in calls:
        if text:
            found.append((text, set(dirty)))
        elif name in _WRITES and path.endswith((".jsonl", "-wal")):
            dirty.add(Path(path).name)
        elif name not in _WRITES:
            dirty.discard(Path(path).name)
    return found


def test_each_call_returns_when_its_writes_are_on_the_disk(tmp_path: Path) -> None:
    calls = trace(tmp_path, "fsync")
    outputs = dirty_files(calls)
    assert len(outputs) == 9
    assert {text: files for text, files in outputs if files} == {}
    synced = [Path(path).name for name, path, _ in calls if name not in _WRITES]
    assert any(name.endswith(".jsonl") for name in synced)
    assert synced.count("store.db-wal") >= 8
    assert "journal" in synced, "a new file is on the disk once its folder is"


def test_without_it_no_call_waits_for_the_disk(tmp_path: Path) -> None:
    calls = trace(tmp_path, "process")
    first = next(index for index, (_, _, text) in enumerate(calls) if text)
    last = max(index for index, (_, _, text) in enumerate(calls) if text.startswith("recorded"))
    synced = [path for name, path, _ in calls[first:last] if name not in _WRITES]
    assert synced == []
