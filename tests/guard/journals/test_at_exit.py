"""A process that ends closes the guards that it left open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from policyguard import Guard

CODE = """
import os, sys
from policyguard import Guard
guard = Guard.load("core", store=sys.argv[1])
session = guard.session("s")
for number in range(2):
    session.record(session.check("read_file", {"path": f"{number}"}), result="text")
"""
FORKED = "child = os.fork()\nif child:\n    os.waitpid(child, 0)\n"


def run(code: str, store: Path) -> None:
    subprocess.run([sys.executable, "-c", code, str(store)], check=True)


def repairs(store: Path) -> str:
    """Return what the next call of the session says of its journal."""
    with Guard.load("core", store=store) as guard:
        session = guard.session("s")
        decision = session.check("write_file", {"path": "next"})
        session.record(decision, result="written")
        return " ".join(map(str, decision.errors))


def test_the_journal_of_an_open_guard_is_anchored(tmp_path: Path) -> None:
    run(CODE, tmp_path / "store.db")
    assert repairs(tmp_path / "store.db") == ""


def test_a_killed_process_anchors_nothing(tmp_path: Path) -> None:
    run(CODE + "os._exit(0)", tmp_path / "store.db")
    assert "adopted" in repairs(tmp_path / "store.db")


def test_a_forked_process_leaves_its_parents_guard_open(tmp_path: Path) -> None:
    after = """
    session.record(session.check("read_file", {"path": "after"}), result="text")
"""
    run(CODE + FORKED + after, tmp_path / "store.db")
    assert repairs(tmp_path / "store.db") == ""
