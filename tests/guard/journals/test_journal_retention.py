"""A guard deletes expired journals, trusts no implausible clock, and says what it repairs."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.journal.errors import JournalError

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
    before = {file: file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()}
    for _ in range(2):
        result = CliRunner().invoke(main, [*arguments, "1d", "--dry-run"])
        assert (result.exit_code, result.stderr) == (0, "1 would be deleted, 0 kept\n")
    for file, content in before.items():
        assert file.read_bytes() == content
    shown = result.stdout
    result = CliRunner().invoke(main, [*arguments, "1d"])
    assert (result.exit_code, result.stderr) == (0, "1 deleted, 0 kept\n")
    assert result.stdout == shown != ""
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


def _wait(guard: Guard) -> None:
    """Wait for a deletion that was begun."""
    assert guard._journal_retention is not None
    thread = guard._journal_retention._thread
    if thread is not None:
        thread.join()


def test_expired_journals_are_deleted_while_the_guard_runs(tmp_path: Path) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    folder = tmp_path / "state" / "journal"
    guard.session("old").end()
    idle = guard.session("idle")
    names = {"old", "idl"}
    for day in range(0, 33, 3):
        clock.now += 3 * DAY
        guard.session(f"s{day:02}").end()
        names.add(f"s{day:02}")
        _wait(guard)
    assert {file.name[:3] for file in folder.iterdir()} == names - {"old"}
    assert idle.check("x").allowed  # an open session is kept, whatever its age
    guard.close()
    store = str(tmp_path / "state" / "store.db")
    assert CliRunner().invoke(main, ["journal", "verify", "--store", store]).exit_code == 0


def test_journals_are_looked_at_when_it_is_time_and_not_after_the_end(tmp_path: Path) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    retention = guard._journal_retention
    assert retention is not None
    guard.session("a")
    _wait(guard)
    before = retention._thread
    guard.session("b")
    assert retention._thread is before, "it is not time yet"
    guard.close()
    clock.now += 4 * DAY
    retention.note_opened()
    assert retention._thread is before, "it is closed"


def test_surplus_journals_are_deleted_while_the_guard_runs(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{journals: 20}}\n")
    with Guard.load(file, store=tmp_path / "state" / "store.db") as guard:
        for number in range(60):
            guard.session(f"s{number}").end()
            _wait(guard)
            assert len(list((tmp_path / "state" / "journal").iterdir())) <= 21


def test_surplus_is_looked_for_once_a_tenth_of_the_journals_were_opened(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{journals: 20}}\n")
    with Guard.load(file, store=tmp_path / "state" / "store.db", clock=Clock()) as guard:
        assert guard._journal_retention is not None
        for _ in range(3):
            guard._journal_retention.apply()
            guard.session("a").end()
            assert guard._journal_retention._thread is None
        guard.session("b").end()
        assert guard._journal_retention._thread is not None
        _wait(guard)


def test_deleting_surplus_journals_evicts_no_anchor(tmp_path: Path) -> None:
    """Journals go when a guard is loaded or has opened sessions: for a while there are more."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{journals: 4}}\n")
    store = tmp_path / "state" / "store.db"
    for number in range(8):
        with Guard.load(file, store=store) as guard:
            guard.session(f"s{number}").end()
    result = CliRunner().invoke(main, ["journal", "verify", "--store", str(store)])
    assert "dropped-anchors" not in result.output
    assert "was deleted" in result.output
    assert result.exit_code == 0


def test_a_session_is_kept_whose_file_was_closed_for_another(tmp_path: Path) -> None:
    """Only its lock says that it is open."""
    clock = Clock()
    guard = _guard(tmp_path, clock)
    session = guard.session("a")
    assert guard._journal is not None
    guard._journal.close()
    clock.now += 6 * DAY
    store = str(tmp_path / "state" / "store.db")
    arguments = ["journal", "prune", "--store", store, "--older-than", "1d"]
    assert CliRunner().invoke(main, arguments).stderr == "0 deleted, 0 kept\n"
    assert session.check("x").allowed
    guard.close()


def test_what_is_kept_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    guard.session("a").end()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"b"'))
    for number in range(20):
        clock.now += 3 * DAY
        guard.session(f"s{number}").end()
        _wait(guard)
    assert caplog.text.count("a journal that is due was not deleted") == 1
    guard.close()


def test_a_failing_deletion_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    guard = _guard(tmp_path, clock)
    retention = guard._journal_retention
    assert retention is not None
    (tmp_path / "state" / "journal").rename(tmp_path / "moved")
    (tmp_path / "state" / "journal").write_text("")
    clock.now += 4 * DAY
    with suppress(JournalError):
        guard.session("a")
    retention.note_opened()
    guard.close()
    assert "could not be deleted" in caplog.text
