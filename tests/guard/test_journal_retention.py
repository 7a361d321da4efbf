"""A guard deletes expired journals, trusts no implausible clock, and says what it repairs."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main

POLICY = (
    "policyguard: 1\nname: p\njournal: {keep_for: 30d, args: keep}\nbudgets: {b: {calls: 100}}\n"
)
DAY = 86_400 * 10**9


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * 10**9

    def __call__(self) -> int:
        return self.now


def _guard(folder: Path, clock: Clock | None = None) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db", clock=clock or Clock())


def test_expired_journals_are_deleted(tmp_path: Path) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    for name in ("old", "new"):
        session = guard.session(name)
        session.check("x")
        session.end()
        clock.now += 2 * DAY
    guard.close()
    folder = tmp_path / "state" / "journal"
    for file in folder.iterdir():
        os.utime(file, (0, 0))  # a file's times prove nothing
    for _ in range(5):
        _guard(tmp_path, clock).close()
        assert len(list(folder.iterdir())) == 2
        clock.now += 6 * DAY
    clock.now -= 3 * DAY  # 31 days after `old`
    _guard(tmp_path, clock).close()
    assert [file.name[:3] for file in folder.iterdir()] == ["new"]
    store = str(tmp_path / "state" / "store.db")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", store])
    assert result.exit_code == 0
    assert "session 'old' with 3 lines was deleted on" in result.stdout


def test_a_clock_that_is_ahead_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    session = guard.session("s")
    session.check("x")
    session.end()
    guard.close()
    assert not caplog.records
    folder = tmp_path / "state" / "journal"
    for days in (365, 1, -366):
        clock.now += days * DAY
        _guard(tmp_path, clock).close()
        assert len(list(folder.iterdir())) == 1
        assert "the clock made an implausible step" in caplog.text
        assert "policyguard journal prune" in caplog.text
        caplog.clear()
    store = str(tmp_path / "state" / "store.db")
    arguments = ["journal", "prune", "--store", store, "--older-than"]
    assert CliRunner().invoke(main, [*arguments, "a while"]).exit_code == 2
    kept = CliRunner().invoke(main, [*arguments, "99999d"])
    assert (kept.exit_code, kept.stderr) == (0, "0 deleted, 0 kept\n")
    result = CliRunner().invoke(main, [*arguments, "1d"])
    assert (result.exit_code, result.stderr) == (0, "1 deleted, 0 kept\n")
    assert list(folder.iterdir()) == []


def test_an_edited_journal_is_not_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    session = guard.session("s")
    session.check("pay")
    session.end()
    guard.close()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    file.write_bytes(file.read_bytes().replace(b"pay", b"pax"))
    os.utime(file, (0, 0))
    for _ in range(6):
        clock.now += 6 * DAY
        _guard(tmp_path, clock).close()
    assert "a journal that is due was not deleted" in caplog.text
    store = str(tmp_path / "state" / "store.db")
    assert CliRunner().invoke(main, ["journal", "verify", "--store", store]).exit_code == 1
    pruned = CliRunner().invoke(main, ["journal", "prune", "--store", store, "--older-than", "1d"])
    assert (pruned.exit_code, file.exists()) == (1, True)


def test_adopted_lines_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = _guard(tmp_path)
    guard.session("s").record(guard.session("s").check("pay"), result="x")
    guard.close()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    lines = file.read_bytes().splitlines()
    found = re.search(rb'"hash":"(\w{64})"', lines[-1])
    assert found is not None
    event = lines[1][: lines[1].rindex(b',"seq":')].replace(b'"c1"', b'"c77"')
    data = event + b',"seq":%d,"prev":"%s"' % (len(lines), found[1])
    with file.open("ab") as forged:
        forged.write(data + b',"hash":"%s"}\n{"event"' % hashlib.sha256(data).hexdigest().encode())
    guard = _guard(tmp_path)
    session = guard.session("s")
    decision = session.check("pay")
    assert decision.allowed
    adopted, cut = decision.errors
    assert (adopted.id, cut.id) == ("journal/adopted", "journal/repaired")
    assert "adopted 1 line beyond the anchor" in adopted.error
    assert session.check("pay").errors == ()
    assert caplog.text.count("adopted 1 line") == 1
    guard.close()
    store = str(tmp_path / "state" / "store.db")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", store])
    assert "warning[journal/adopted]" in result.stdout
    assert "lines were adopted that had no anchor" in result.stderr
