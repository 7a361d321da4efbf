"""Files that people name may be devices, endless or huge: a message, in bounded memory and time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from policyguard.store.protocol import Anchor, Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.examples import slow_but

DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trace.jsonl"
ZERO = "/dev/zero"
MEMORY = 3 << 30


def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policyguard", *args]
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("journal show FILE", "not a regular file"),
        ("journal show HUGE", "a line has more than"),
        ("constraints import HUGE --store STORE", "a line has more than"),
        ("constraints list --store FILE", "not a regular file"),
        ("journal verify FILE", "not a regular file"),
        ("journal verify JOURNAL --anchor HUGE", "a line has more than"),
        ("journal verify JOURNAL --key HUGE", "more than 65,536 bytes"),
        ("simulate JOURNAL --labels HUGE", "a line has more than"),
        ("simulate JOURNAL --policy FILE", "not a regular file"),
        ("simulate FILE", "not a regular file"),
        ("lint FILE", "not a regular file"),
        ("lint --config HUGE", "at most 1,048,576 are allowed"),
        ("test HUGE", "at most 1,048,576 are allowed"),
        *(
            pytest.param(command, message, marks=pytest.mark.slow)
            for command, message in (
                ("journal show --follow HUGE", "a line has more than"),
                ("journal anchors --store FILE", "not a regular file"),
                ("simulate JOURNAL --baseline FILE", "not a regular file"),
                ("suggest JOURNAL --max-harm 0.1 --labels HUGE", "a line has more than"),
                ("traces stats FILE", "not a regular file"),
                ("traces convert FILE -o -", "not a regular file"),
                ("policy show FILE", "not a regular file"),
                ("policy diff core FILE", "not a regular file"),
            )
        ),
    ],
)
def test_an_endless_device_or_a_huge_file_is_named_in_a_message(
    command: str, message: str, tmp_path: Path
) -> None:
    store = str(tmp_path / "state" / "store.db")
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 2 * MEMORY)
    names = {"FILE": ZERO, "HUGE": str(huge), "JOURNAL": str(DEMO), "STORE": store}
    done = run(*(names.get(word, word) for word in command.split()))
    assert done.returncode in (1, 2)
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", slow_but(("lint", "test"), ["lint", "test", "lint --fix"]))
def test_a_huge_file_in_a_folder_is_not_read_as_a_whole(command: str, tmp_path: Path) -> None:
    for name in ("x.yaml", "tests.yaml"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2 * MEMORY)
    done = run(*command.split(), str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "no policy in" in done.stderr or "no tests.yaml" in done.stderr


@pytest.mark.parametrize(
    "content", slow_but(("", "[1]\n{}\n"), ["", "host\n", "[1]\n{}\n", '{"event": 1}\n'])
)
def test_a_file_without_an_event_is_no_journal(content: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(content)
    done = run("journal", "show", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a journal" in done.stderr
    assert "traces stats" in done.stderr


def test_a_journal_is_shown_though_its_first_lines_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(b"{broken\n" + DEMO.read_bytes())
    done = run("journal", "show", str(file))
    assert done.returncode == 0
    assert done.stdout.startswith("not an event: {broken\nsession ")


def test_a_folder_in_place_of_a_journal_is_named(tmp_path: Path) -> None:
    done = run("journal", "show", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.endswith("is a folder; name one of its journals\n")


@pytest.mark.parametrize(
    "command",
    slow_but(
        ("--help", "lint"),
        ["--help", "schema", "lint", f"simulate {DEMO}", f"journal show {DEMO}"],
    ),
)
def test_a_closed_standard_output_is_named_and_2(command: str) -> None:
    line = f'exec "{sys.executable}" -m policyguard {command} >&-'
    shell = ["sh", "-c", line]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "policyguard: standard output cannot be written: it is closed\n"


def test_anchors_are_read_from_a_pipe(tmp_path: Path) -> None:
    store = SqliteStore(
        tmp_path / "s" / "store.db",
        caps=Caps(constraints=1, grants=1, evidence=1, anchors=9),
    )
    store.anchors.put(Anchor("s", "c", 1, "h", 1))
    store.close()
    exported = run("journal", "anchors", "--store", str(tmp_path / "s" / "store.db")).stdout
    done = run("journal", "verify", str(DEMO), "--anchor", "/dev/stdin", stdin=exported + "{}\n")
    assert "line 2 is not an anchor" in done.stderr
