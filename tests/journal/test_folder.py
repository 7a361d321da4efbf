"""Old and surplus journals are deleted, and nothing looks stolen."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from policyguard.journal.errors import JournalError
from policyguard.journal.folder import prune
from policyguard.journal.verify import verify
from policyguard.model.event import SessionEnded, SessionStarted
from tests.journal.setup import BEGIN, SECOND, JournalSetup

DAY = 86_400 * SECOND


def write_closed(setup: JournalSetup, *sessions: str) -> None:
    """Write sessions that end on successive days, the first at `BEGIN`."""
    for day, session in enumerate(sessions):
        setup.write(SessionStarted(session), SessionEnded(session))
        at = BEGIN + day * DAY
        os.utime(setup.journal.path_of(session), ns=(at, at))


def anchored_sessions(setup: JournalSetup) -> list[str]:
    return [anchor.session for anchor in setup.anchors.all()]


def test_old_journals_are_deleted_with_their_anchors(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b", "c")
    deleted = prune(setup.folder, setup.anchors, before=BEGIN + DAY + 1, max_journals=100)
    assert deleted == [setup.journal.path_of("a"), setup.journal.path_of("b")]
    assert anchored_sessions(setup) == ["c"]
    assert verify([setup.folder], anchors=setup.anchors).findings == ()
    assert prune(setup.folder, setup.anchors, before=None, max_journals=100) == []


def test_the_oldest_surplus_journals_are_deleted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b", "c", "d")
    prune(setup.folder, setup.anchors, before=None, max_journals=2)
    assert anchored_sessions(setup) == ["c", "d"]
    prune(setup.folder, setup.anchors, before=None, max_journals=0)
    assert anchored_sessions(setup) == []
    assert list(setup.folder.iterdir()) == []


def test_an_open_journal_is_kept(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"))
    os.utime(setup.journal.path_of("s"), ns=(BEGIN, BEGIN))
    assert prune(setup.folder, setup.anchors, before=BEGIN + DAY, max_journals=0) == []
    setup.write(SessionEnded("s"))
    assert list(setup.journal.read_events("s")) == [SessionStarted("s"), SessionEnded("s")]


def test_a_session_continues_while_its_file_is_deleted(tmp_path: Path) -> None:
    """The writer has opened the file, and gets the lock when the file is deleted."""
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    path = setup.journal.path_of("a")
    setup.anchors.delete("a")
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=setup.write, args=(SessionStarted("a"),))
        writer.start()
        time.sleep(0.02)
        path.unlink()
    writer.join()
    assert list(setup.journal.read_events("a")) == [SessionStarted("a")]


def test_a_pruned_session_can_start_again(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    prune(setup.folder, setup.anchors, before=None, max_journals=0)
    setup.write(SessionStarted("a"))
    assert list(setup.journal.read_events("a")) == [SessionStarted("a")]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for name in ("notes.jsonl", "notes.txt", f"x-{'0' * 31}.jsonl"):
        (setup.folder / name).write_text("precious")
    prune(setup.folder, setup.anchors, before=BEGIN * 2, max_journals=0)
    assert len(list(setup.folder.iterdir())) == 3


def test_a_file_does_not_delete_the_anchor_of_another_session(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    setup.journal.path_of("a").write_bytes(setup.journal.path_of("b").read_bytes())
    os.utime(setup.journal.path_of("a"), ns=(BEGIN, BEGIN))
    prune(setup.folder, setup.anchors, before=BEGIN + 1, max_journals=100)
    assert anchored_sessions(setup) == ["a", "b"]  # the exchange of `a` stays visible
    assert verify([setup.folder], anchors=setup.anchors).has_failed


def test_a_missing_folder_contains_nothing(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    assert prune(tmp_path / "nowhere", setup.anchors, before=None, max_journals=0) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be deleted"):
        prune(tmp_path / "file", setup.anchors, before=None, max_journals=0)


@pytest.mark.slow
def test_a_hundred_thousand_sessions_leave_max_journals_files(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for number in range(100_000):
        setup.write(SessionStarted(f"s{number}"), SessionEnded(f"s{number}"))
        if number % 1000 == 999:
            prune(setup.folder, setup.anchors, before=None, max_journals=1000)
    assert len(list(setup.folder.iterdir())) == 1000
    assert len(anchored_sessions(setup)) == 1000
    assert verify([setup.folder], anchors=setup.anchors).findings == ()
