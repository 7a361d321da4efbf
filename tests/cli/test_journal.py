"""`policyguard journal`: a journal for people; and what programs do with one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redaction
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Refused,
    SessionEnded,
    SessionStarted,
)
from policyguard.model.policy import RedactionMode
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore

FINGERPRINTER = Fingerprinter(b"k", ignore=(), fold=(), tolerance={}, depth=20, size=10_000)
AT = 1_755_500_000_123_000_000
RUN: tuple[Event, ...] = (
    SessionStarted("run-7", AT, agent="coder"),
    Admitted("run-7", AT, "c1", "grep", {"pattern": "ls\n-l"}, fingerprint="f" * 32),
    Completed("run-7", AT, "c1", ok=True, text="a\x1b[31mred\nb", result_fingerprint="r" * 32),
    Refused("run-7", AT, "c2", "rm", {"n": 1}, effect="halt", violations=("rules/no",)),
    SessionEnded("run-7", AT),
)


def journal(folder: Path, kept: RedactionMode = "keep") -> Journal:
    anchors = MemoryStore(caps=Caps(constraints=1, grants=1, evidence=1, anchors=10)).anchors
    return Journal(
        folder / "journal",
        anchors,
        redactions=Redaction(args=kept, results=kept, fingerprinter=FINGERPRINTER).by_event_type,
        sync=False,
        max_field_bytes=10_000,
        max_open_files=4,
    )


def written(folder: Path, kept: RedactionMode = "keep") -> Path:
    made = journal(folder, kept)
    for event in RUN:
        made.write(event)
    return made.path_of("run-7")


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["journal", *map(str, args)], catch_exceptions=False)


def test_show_prints_each_event_on_one_line_fit_for_a_terminal(tmp_path: Path) -> None:
    result = _run("show", written(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "session run-7",
        "2025-08-18 06:53:20.123 started      agent=coder",
        '2025-08-18 06:53:20.123 admitted     c1 grep {"pattern":"ls\\n-l"}',
        "2025-08-18 06:53:20.123 completed    c1 a�[31mred b ok=true",
        '2025-08-18 06:53:20.123 refused      c2 rm {"n":1} halt ["rules/no"]',
        "2025-08-18 06:53:20.123 closed",
    ]


def test_show_prints_what_was_hashed_as_it_stands(tmp_path: Path) -> None:
    shown = _run("show", written(tmp_path, "hash")).stdout
    assert 'c1 grep {"#":"#' in shown
    assert "ls" not in shown


def test_show_marks_lines_that_are_no_events(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(
        b'[1]\n\xff\x1b\n{"event":["x"],"session":7,"at":1e400}\n'
        b'{"event":"closed","session":"s","at":99999999999999999999999999}\n{"event":"torn'
    )
    result = _run("show", file)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "not an event: [1]" in result.stdout
    assert "torn" not in result.stdout


def test_show_of_nothing_is_2(tmp_path: Path) -> None:
    result = _run("show", tmp_path / "nowhere.jsonl")
    assert result.exit_code == 2
    assert "nowhere.jsonl: cannot be read: No such file" in result.stderr
    assert _run("show", tmp_path).exit_code == 2


def test_follow_goes_on_with_what_is_written(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.write(RUN[0])
    follower = subprocess.Popen(
        [sys.executable, "-m", "policyguard", "journal", "show", made.path_of("run-7"), "--follow"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "session run-7\n"
        assert "started" in follower.stdout.readline()
        for event in RUN[1:]:
            made.write(event)
            assert type(event).__struct_config__.tag in follower.stdout.readline()
    finally:
        follower.kill()
        follower.communicate()


def test_anchors_of_no_store_are_2(tmp_path: Path) -> None:
    result = _run("anchors", "--store", tmp_path / "store.db", "-o", tmp_path / "anchors.jsonl")
    assert result.exit_code == 2
    assert "no store at this path" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_lacks_transactions_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    caps = Caps(constraints=1, grants=1, evidence=9, anchors=9)
    with closing(SqliteStore(path, caps=caps)) as store:
        store.evidence.put("s", "a", b"1")
    earlier = path.read_bytes()
    with closing(SqliteStore(path, caps=caps)) as store:
        store.evidence.put("s", "b", b"2")
    written(tmp_path)
    assert "journal/store-behind" not in _run("verify", "--store", path).output
    path.write_bytes(earlier)
    result = _run("verify", "--store", path)
    assert result.exit_code == 1
    assert (
        "error[journal/store-behind]: transactions that were made last are missing: 1"
        in result.output
    )


@pytest.mark.parametrize(("kept", "decided"), [("keep", 2), ("mask", 1), ("hash", 1), ("drop", 1)])
def test_simulate_replays_a_journal(tmp_path: Path, kept: RedactionMode, decided: int) -> None:
    """What was not kept is unknown, and the report says so: never "no match".

    Of the first call the fingerprint was kept, and `core` asks no more of it; of the second not.
    """
    file = written(tmp_path, kept)
    result = CliRunner().invoke(
        main, ["simulate", str(file), "--format", "json"], catch_exceptions=False
    )
    report = json.loads(result.stdout)
    assert report["traces"]["formats"] == {"policyguard": 1}
    assert report["traces"]["calls"] == 2
    assert sum(report["effects"].values()) == decided
    assert report["traces"]["unknown"] == 2 - decided
    assert report["traces"]["hidden"]["args"] == (0 if kept == "keep" else 2)


def test_prune_deletes_journals_of_the_users_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = tmp_path / "policyguard" / "store.db"
    result = _run("prune", "--older-than", "30d")
    assert result.exit_code == 2
    assert f"{store}: no store at this path" in result.stderr
    file = tmp_path / "policy.yaml"
    file.write_text("policyguard: 1\nname: p\n")
    with Guard.load(file, store=store, clock=lambda: AT) as guard:
        guard.session("old").check("x")
    result = _run("prune", "--older-than", "30d")
    assert result.exit_code == 0
    assert "1 deleted, 0 kept" in result.stderr
