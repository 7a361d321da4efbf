"""A pipe that a command names is refused at once: it would wait for another program."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.examples import slow_but

DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trace.jsonl"
_CAPS = Caps(constraints=1, grants=1, evidence=1, anchors=1)
SECONDS = 30
"""More than a command takes on a busy machine: without a writer a pipe would take for ever."""
INPUTS = [
    "simulate TRACE --policy core --labels FILE",
    "simulate TRACE --policy core --labels FILE.csv",
    "simulate TRACE --policy core --labels FILE.parquet",
    "simulate FILE --policy core --workers 2",
    "suggest TRACE --policy core --max-harm 0.1 --labels FILE",
    "test FILE",
    "test FOLDER",
    "lint --config FILE",
    "constraints import FILE",
    "journal show FILE",
    "journal show --follow FILE",
    "journal verify FILE",
    "journal verify FOLDER",
    "journal verify TRACE --anchor FILE",
    "journal verify TRACE --key FILE",
    "bundle build POLICY --version 1 -o out --test FILE",
    "bundle sign FILE --key FILE",
    "bundle sign BUNDLE --key FILE",
    "bundle verify BUNDLE --key FILE",
    "bundle pull BUNDLE --to to --key FILE",
    "mcp pin --lock FILE -- true",
    "mcp diff --lock FILE -- true",
    "mcp install claude-desktop --settings FILE",
    "hook install claude-code --settings FILE",
    "serve --port 9999 --token-file FILE",
    "serve --admin-token-file FILE",
    "approvals list --admin-token-file FILE",
    "console --admin-token-file FILE",
]
QUICK = [INPUTS[1], INPUTS[6], "journal verify TRACE --key FILE", "mcp pin --lock FILE -- true"]
OUTPUTS = [
    "traces convert TRACE -o FILE",
    "simulate TRACE --policy core -o FILE",
    "journal anchors --store STORE -o FILE",
    "bundle build POLICY --version 1 -o FILE",
    "init core -o FILE --force",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with pipes under the names that commands read or write."""
    (tmp_path / "inner").mkdir()
    names = ("x", "x.csv", "x.parquet", "inner/a.tests.yaml", "inner/tests.yaml", "inner/j.jsonl")
    for name in names:
        os.mkfifo(tmp_path / name)
    (tmp_path / "policy.yaml").write_text("policyguard: 1\nname: p\n")
    SqliteStore(tmp_path / "state" / "store.db", caps=_CAPS).close()
    return tmp_path


def run(command: str, folder: Path, **opened: Any) -> subprocess.CompletedProcess[str]:
    places = {"FILE": "x", "FOLDER": "inner", "STORE": "state/store.db", "POLICY": "policy.yaml"}
    places["TRACE"] = str(DEMO)
    words = [places.get(word, word).replace("FILE", "x") for word in command.split()]
    return subprocess.run(
        [sys.executable, "-m", "policyguard", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "home")},
        timeout=SECONDS,
        **opened,
    )


@pytest.mark.parametrize("command", slow_but(QUICK, INPUTS))
def test_a_pipe_to_read_is_refused_at_once(command: str, folder: Path) -> None:
    if "BUNDLE" in command:
        run("bundle build POLICY --version 1 -o a.bundle.json", folder)
        command = command.replace("BUNDLE", "a.bundle.json")
    done = run(command, folder)
    assert done.returncode in (1, 2)
    assert "not a regular file" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", slow_but(OUTPUTS[2:3], OUTPUTS))
def test_a_pipe_that_no_program_reads_is_not_waited_for(command: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 2
    assert "`x` cannot be written: no program reads from it" in done.stderr
    assert stat.S_ISFIFO((folder / "x").stat().st_mode)


def test_a_pipe_of_the_shell_is_read(folder: Path) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b'{"session": "s"}\n')
    os.close(theirs)
    labels = f"simulate TRACE --policy POLICY --labels /dev/fd/{ours}"
    done = run(labels, folder, pass_fds=(ours,))
    os.close(ours)
    assert f"/dev/fd/{ours}:1: not a label" in done.stderr


def test_constraints_are_read_from_standard_input(folder: Path) -> None:
    done = run("constraints import - --store STORE", folder)
    assert (done.returncode, done.stdout) == (0, "0 imported\n")
