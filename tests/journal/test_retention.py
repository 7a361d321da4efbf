"""Journals go when they are old or too many, and nothing looks as if it had been taken away."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from policyguard.journal.errors import JournalError
from policyguard.journal.retention import prune
from policyguard.journal.verify import verify
from policyguard.model.event import Closed, Started
from tests.journal.world import BEGIN, SECOND, World

DAY = 86_400 * SECOND


def closed(world: World, *sessions: str) -> None:
    """Sessions that ended one day after the other, the first at `BEGIN`."""
    for day, session in enumerate(sessions):
        world.write(Started(session), Closed(session))
        at = BEGIN + day * DAY
        os.utime(world.journal.path_of(session), ns=(at, at))


def left(world: World) -> list[str]:
    return [anchor.session for anchor in world.anchors.all()]


def test_old_journals_go_with_their_anchors(tmp_path: Path) -> None:
    world = World(tmp_path)
    closed(world, "a", "b", "c")
    gone = prune(world.folder, world.anchors, before=BEGIN + DAY + 1, max_journals=100)
    assert gone == [world.journal.path_of("a"), world.journal.path_of("b")]
    assert left(world) == ["c"]
    assert verify([world.folder], anchors=world.anchors).findings == ()
    assert prune(world.folder, world.anchors, before=None, max_journals=100) == []


def test_the_oldest_of_too_many_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    closed(world, "a", "b", "c", "d")
    prune(world.folder, world.anchors, before=None, max_journals=2)
    assert left(world) == ["c", "d"]
    prune(world.folder, world.anchors, before=None, max_journals=0)
    assert left(world) == []
    assert list(world.folder.iterdir()) == []


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(Started("s"))
    os.utime(world.journal.path_of("s"), ns=(BEGIN, BEGIN))
    assert prune(world.folder, world.anchors, before=BEGIN + DAY, max_journals=0) == []
    world.write(Closed("s"))
    assert list(world.journal.read_events("s")) == [Started("s"), Closed("s")]


def test_a_session_goes_on_while_its_file_is_being_removed(tmp_path: Path) -> None:
    """The writer has opened the file, and gets the lock when it is nobody's any more."""
    world = World(tmp_path)
    closed(world, "a")
    path = world.journal.path_of("a")
    world.anchors.delete("a")
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=world.write, args=(Started("a"),))
        writer.start()
        time.sleep(0.02)
        path.unlink()
    writer.join()
    assert list(world.journal.read_events("a")) == [Started("a")]


def test_a_session_that_was_pruned_may_begin_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    closed(world, "a")
    prune(world.folder, world.anchors, before=None, max_journals=0)
    world.write(Started("a"))
    assert list(world.journal.read_events("a")) == [Started("a")]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("notes.jsonl", "notes.txt", f"x-{'0' * 31}.jsonl"):
        (world.folder / name).write_text("precious")
    prune(world.folder, world.anchors, before=BEGIN * 2, max_journals=0)
    assert len(list(world.folder.iterdir())) == 3


def test_a_file_has_no_say_over_the_anchor_of_another_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    closed(world, "a", "b")
    world.journal.path_of("a").write_bytes(world.journal.path_of("b").read_bytes())
    os.utime(world.journal.path_of("a"), ns=(BEGIN, BEGIN))
    prune(world.folder, world.anchors, before=BEGIN + 1, max_journals=100)
    assert left(world) == ["a", "b"]  # that `a` was exchanged is still to be seen
    assert verify([world.folder], anchors=world.anchors).has_failed


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert prune(tmp_path / "nowhere", world.anchors, before=None, max_journals=0) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be removed"):
        prune(tmp_path / "file", world.anchors, before=None, max_journals=0)


@pytest.mark.slow
def test_a_hundred_thousand_sessions_leave_as_many_files_as_are_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(100_000):
        world.write(Started(f"s{number}"), Closed(f"s{number}"))
        if number % 1000 == 999:
            prune(world.folder, world.anchors, before=None, max_journals=1000)
    assert len(list(world.folder.iterdir())) == 1000
    assert len(left(world)) == 1000
    assert verify([world.folder], anchors=world.anchors).findings == ()
