"""Old and surplus journals are deleted if they verify, and each leaves a note."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard.journal.anchors.export import anchor_lines, read_anchors
from policyguard.journal.chain import Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.handover import place_of
from policyguard.journal.left_over import is_left_over
from policyguard.journal.retention import PruneResult, note_load
from policyguard.journal.retention import prune as prune_folder
from policyguard.journal.retention_terms import Retention
from policyguard.journal.verify import verify
from policyguard.model.event import SessionEnded, SessionStarted
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Pruned, SessionLock
from tests.journal.setup import BEGIN, CAPS, SECOND, JournalSetup, run

DAY = 86_400 * SECOND
POLICY = Retention(
    keep_for=30 * DAY, max_journals=100, max_gap=7 * DAY, policy="house", digest="abc"
)


def prune(
    setup: JournalSetup,
    *,
    before: int | None,
    max_journals: int = 100,
    now: int = BEGIN + 100 * DAY,
    key: bytes | None = None,
) -> PruneResult:
    """Prune the journals of a setup."""
    policy = msgspec.structs.replace(POLICY, max_journals=max_journals)
    return prune_folder(
        setup.folder,
        setup.anchors,
        policy,
        now=now,
        before=before,
        hasher=Hasher(key),
        lock_session=MemoryStore(caps=CAPS).lock_session,
    )


def write_closed(setup: JournalSetup, *sessions: str) -> None:
    """Write sessions that end on successive days, the first at `BEGIN`."""
    for day, session in enumerate(sessions):
        at = BEGIN + day * DAY
        setup.write(SessionStarted(session, at), SessionEnded(session, at))


def anchored_sessions(setup: JournalSetup) -> list[str]:
    return [anchor.session for anchor in setup.anchors.all()]


def test_old_journals_are_deleted_and_noted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b", "c")
    whole = setup.anchors.get("a")
    assert whole is not None
    deleted = prune(setup, before=BEGIN + DAY + 1).deleted
    assert list(deleted) == [setup.journal.path_of("a"), setup.journal.path_of("b")]
    assert anchored_sessions(setup) == ["c"]
    note = next(iter(setup.anchors.notes()))
    assert note == Pruned(
        "a", whole.chain, 2, whole.hash, whole.size, BEGIN + 100 * DAY, "house", "abc"
    )
    result = verify([setup.folder], anchors=setup.anchors)
    assert not result.has_failed
    assert [finding.code for finding in result.findings] == ["journal/pruned"] * 2
    assert "session 'a' with 2 lines was deleted on 2025-11-26" in result.findings[0].message
    assert "by `house` (abc)" in result.findings[0].message
    assert prune(setup, before=None) == PruneResult((), ())


def test_a_files_own_times_do_not_count(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    os.utime(setup.journal.path_of("b"), ns=(1, 1))
    assert prune(setup, before=BEGIN + DAY).deleted == (setup.journal.path_of("a"),)
    write_closed(setup, "c")
    os.utime(setup.journal.path_of("c"), ns=(BEGIN + 9 * DAY, BEGIN + 9 * DAY))
    assert prune(setup, before=BEGIN + DAY).deleted == (setup.journal.path_of("c"),)


def test_a_journal_that_was_edited_is_never_deleted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b", "c")
    edited, rewritten = setup.journal.path_of("a"), setup.journal.path_of("b")
    edited.write_bytes(edited.read_bytes().replace(b'"at":1', b'"at":2'))
    other = JournalSetup(tmp_path / "other")
    other.write(SessionStarted("b", BEGIN), SessionEnded("b", BEGIN))
    rewritten.write_bytes(b"".join(other.lines("b")))
    result = prune(setup, before=BEGIN + 9 * DAY, max_journals=0)
    assert result.deleted == (setup.journal.path_of("c"),)
    assert [error.path for error in result.kept] == [edited, rewritten]
    assert "differs from its anchor" in str(result.kept[1])
    assert anchored_sessions(setup) == ["a", "b"]
    assert verify([setup.folder], anchors=setup.anchors).has_failed


@pytest.mark.parametrize("instead", ["link", "pipe"])
def test_what_stands_in_place_of_a_journal_is_never_deleted(tmp_path: Path, instead: str) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    path = setup.journal.path_of("a")
    path.rename(tmp_path / "elsewhere")
    if instead == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    result = prune(setup, before=BEGIN + 9 * DAY)
    assert result.deleted == (setup.journal.path_of("b"),)
    assert [error.path for error in result.kept] == [path]
    assert anchored_sessions(setup) == ["a"]
    assert os.path.lexists(path)


def test_a_broken_line_without_an_anchor_is_never_deleted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    file = setup.journal.path_of("a")
    lines = setup.lines("a")
    file.write_bytes(lines[0] + lines[1].replace(b'"at":1', b'"at":2'))
    setup.anchors.delete("a")
    result = prune(setup, before=BEGIN * 3)
    assert result.deleted == ()
    assert "line 2" in str(result.kept[0])


def test_the_hashed_time_decides_over_the_anchored_one(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    anchor = setup.anchors.get("a")
    assert anchor is not None
    setup.anchors.put(msgspec.structs.replace(anchor, at=1))
    assert prune(setup, before=BEGIN).deleted == ()
    setup.anchors.put(msgspec.structs.replace(anchor, at=None))  # from before times were anchored
    assert prune(setup, before=BEGIN).deleted == ()
    assert prune(setup, before=BEGIN + 1).deleted == (setup.journal.path_of("a"),)


def test_a_journal_without_an_anchor_is_as_old_as_its_last_line(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    for session in "ab":
        setup.anchors.delete(session)
    assert prune(setup, before=BEGIN + 1).deleted == (setup.journal.path_of("a"),)
    assert list(setup.anchors.notes()) == []  # nothing was anchored, so nothing is missing


def test_a_journal_that_is_anchored_meanwhile_is_kept(tmp_path: Path) -> None:
    """A session that begins and ends while journals are looked at is not the oldest of them."""
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    anchor = setup.anchors.get("b")
    assert anchor is not None
    setup.anchors.delete("b")

    def lock_session(session: str) -> SessionLock:
        setup.anchors.put(anchor)
        return MemoryStore(caps=CAPS).lock_session(session)

    result = prune_folder(
        setup.folder,
        setup.anchors,
        msgspec.structs.replace(POLICY, max_journals=1),
        now=BEGIN + 100 * DAY,
        before=None,
        hasher=Hasher(None),
        lock_session=lock_session,
    )
    assert result.deleted == (setup.journal.path_of("a"),)
    assert not verify([setup.folder], anchors=setup.anchors).has_failed


def test_a_journal_of_one_line_is_as_old_as_that(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("a", BEGIN))
    setup.anchors.delete("a")
    setup.restart()
    assert prune(setup, before=BEGIN + 1).deleted == (setup.journal.path_of("a"),)


def test_a_file_without_times_does_not_age(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    (setup.folder / f"x-{'0' * 32}.jsonl").write_text("{}\n")
    assert prune(setup, before=BEGIN) == PruneResult((), ())


def test_a_pruned_journal_that_comes_back_cut_has_lost_its_anchor(tmp_path: Path) -> None:
    key = b"k" * 32
    setup = JournalSetup(tmp_path, key=key)
    setup.write(SessionStarted("a", BEGIN), *run("a")[1:])
    file, content = setup.journal.path_of("a"), setup.journal.path_of("a").read_bytes()
    assert prune(setup, before=BEGIN + DAY, key=key).deleted == (file,)

    def findings() -> dict[str, str]:
        found = verify([setup.folder], anchors=setup.anchors, key=key).findings
        return {finding.code: finding.message for finding in found}

    file.write_bytes(content)  # as if the process had died before it deleted the file
    assert list(findings()) == ["journal/no-anchor", "journal/pruned"]
    assert findings()["journal/no-anchor"].startswith("of a journal that was pruned: none of ")
    file.write_bytes(b"".join(content.splitlines(keepends=True)[:3]))
    assert list(findings()) == ["journal/lost-anchor", "journal/pruned"]


def test_a_file_is_left_over_only_from_its_own_journal_pruned_elsewhere(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"))
    setup.restart()
    setup.write(SessionStarted("s"))  # notes what it adopts
    file, anchor = setup.journal.path_of("s"), setup.anchors.get("s")
    assert anchor is not None
    assert not is_left_over(file, setup.anchors)
    known = Pruned("s", anchor.chain, 2, anchor.hash, anchor.size, BEGIN, "house", "", "elsewhere")
    for changes, expected in (
        ({}, True),
        ({"place": place_of(setup.folder)}, False),
        ({"chain": "0" * 32}, False),  # the session has begun anew since
        ({"session": "t"}, False),
    ):
        anchors = MemoryStore(caps=CAPS).anchors
        anchors.add_note(msgspec.structs.replace(known, **changes))
        assert is_left_over(file, anchors) is expected
        assert not is_left_over(setup.journal.path_of("none"), anchors)


def test_keyed_journals_need_their_key(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, key=b"k" * 32)
    write_closed(setup, "a")
    (error,) = prune(setup, before=BEGIN + 1).kept
    assert "need another key" in str(error)
    assert len(prune(setup, before=BEGIN + 1, key=b"k" * 32).deleted) == 1


def test_the_oldest_surplus_journals_are_deleted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b", "c", "d")
    prune(setup, before=None, max_journals=2)
    assert anchored_sessions(setup) == ["c", "d"]
    prune(setup, before=None, max_journals=0)
    assert anchored_sessions(setup) == []
    assert list(setup.folder.iterdir()) == []


def test_made_up_files_push_no_journal_out(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    line = setup.lines("a")[0]
    for number in range(5):
        (setup.folder / f"x-{number:032}.jsonl").write_bytes(line)
    forged = JournalSetup(tmp_path / "forged")
    write_closed(forged, "c", "d")
    for session in "cd":
        setup.journal.path_of(session).write_bytes(b"".join(forged.lines(session)))
    prune(setup, before=None, max_journals=2)
    assert anchored_sessions(setup) == ["a", "b"]
    assert not setup.journal.path_of("c").exists()


def test_an_exported_anchor_is_explained_by_an_exported_note_only(tmp_path: Path) -> None:
    """Whoever can write the store can claim that a journal was pruned."""
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    file = tmp_path / "exported"
    file.write_text("\n".join(anchor_lines(setup.anchors.all())))
    prune(setup, before=BEGIN + 1)
    (missing, pruned) = verify(
        [setup.folder], anchors=setup.anchors, exported=read_anchors(file)
    ).findings
    assert missing.code == "journal/missing-file"
    assert "the store says that it was pruned on 2025-11-26" in missing.message
    assert pruned.code == "journal/pruned"
    with file.open("a") as later:
        later.write("\n" + "\n".join(anchor_lines(setup.anchors.notes())))
    exported = read_anchors(file)
    assert not verify([setup.folder], anchors=setup.anchors, exported=exported).has_failed
    setup.write(SessionStarted("a", BEGIN))  # its id is used again
    assert not verify([setup.folder], anchors=setup.anchors, exported=exported).has_failed


def test_a_note_does_not_excuse_an_anchored_journal(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    anchor = setup.anchors.get("a")
    assert anchor is not None
    end = (anchor.session, anchor.chain, anchor.count, anchor.hash, anchor.size)
    note = Pruned(*end, BEGIN, "house", "")
    setup.anchors.add_note(note)
    setup.journal.path_of("a").unlink()
    result = verify([setup.folder], anchors=setup.anchors, exported=[anchor, note])
    assert "journal/missing-file" in [finding.code for finding in result.findings]


def test_an_implausible_step_of_the_clock_stops_pruning(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)

    def load(day: float) -> int | None:
        since = note_load(setup.anchors, BEGIN + int(day * DAY), POLICY).trusted_since
        return None if since is None else (since - BEGIN) // DAY

    assert load(0) is None  # new
    assert load(6) is None
    write_closed(setup, "a")
    assert load(12) is None
    assert load(377) == 377  # ahead
    assert load(378) == 377  # it stays there: not trusted before it has run for 30 days
    assert load(13) == 13  # set right: a step back is one too
    for day in (19, 25, 31, 37, 42):
        assert load(day) == 13
    assert load(43) is None
    event = JournalSetup(tmp_path, anchors=setup.anchors)
    event.write(SessionStarted("b", BEGIN + 99 * DAY), SessionEnded("b", BEGIN + 99 * DAY))
    assert load(100) is None  # a guard ran until yesterday
    assert load(200) == 200


def test_a_store_without_known_times_is_not_trusted(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a")
    anchor = setup.anchors.get("a")
    assert anchor is not None
    setup.anchors.put(msgspec.structs.replace(anchor, at=None))
    assert note_load(setup.anchors, BEGIN, POLICY).trusted_since == BEGIN


def test_adopted_lines_are_reported_for_good(tmp_path: Path) -> None:
    """Without a key anyone can append a line that follows the chain."""
    for key in (None, b"k" * 32):
        setup = JournalSetup(tmp_path / str(key), key=key)
        setup.write(*run(close=False))
        setup.journal.close()
        path = setup.journal.path_of("s")
        new_hash = Hasher(key).digest
        last = setup.lines()[-1]
        found = re.search(rb'"hash":"(\w{64})"', last)
        assert found is not None
        event = last[: last.rindex(b',"seq":')]
        data = event + b',"seq":9,"prev":"%s"' % found[1]
        with path.open("ab") as file:
            file.write(data + b',"hash":"%s"}\n' % new_hash(data).encode())
        setup.restart()
        setup.write(SessionEnded("s", BEGIN))
        code = "journal/adopted" if key is None else "journal/repaired"
        result = verify([setup.folder], anchors=setup.anchors, key=key)
        (finding,) = result.findings
        assert (finding.code, finding.line) == (code, 10)
        assert setup.findings[0].code == code
        setup.restart()
        setup.write(SessionEnded("s", BEGIN))
        assert setup.findings == []  # said once
        assert [one.code for one in verify([path], anchors=setup.anchors, key=key).findings] == [
            code
        ]


def test_an_open_journal_is_kept(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"))
    assert prune(setup, before=BEGIN + DAY, max_journals=0) == PruneResult((), ())
    setup.write(SessionEnded("s"))
    assert list(setup.journal.read_events("s")) == [SessionStarted("s"), SessionEnded("s")]


def test_a_journal_that_goes_on_after_it_was_verified_is_kept(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("a"))
    setup.journal.close()
    setup.anchors.delete("a")  # which would tell too
    store = MemoryStore(caps=CAPS)

    def go_on(session: str) -> SessionLock:
        setup.write(SessionStarted(session))
        setup.journal.close()
        setup.anchors.delete(session)
        return store.lock_session(session)

    now, hasher = BEGIN + 100 * DAY, Hasher(None)
    excess = msgspec.structs.replace(POLICY, max_journals=0)
    options: dict[str, Any] = {"now": now, "before": now, "hasher": hasher}
    kept = prune_folder(setup.folder, setup.anchors, excess, lock_session=go_on, **options)
    assert kept == PruneResult((), ())
    gone = prune_folder(
        setup.folder, setup.anchors, excess, lock_session=store.lock_session, **options
    )
    assert len(gone.deleted) == 1


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
    prune(setup, before=None, max_journals=0)
    setup.write(SessionStarted("a"))
    assert list(setup.journal.read_events("a")) == [SessionStarted("a")]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for name in ("notes.jsonl", "notes.txt", f"x-{'0' * 31}.jsonl"):
        (setup.folder / name).write_text("precious")
    (setup.folder / f"y-{'0' * 32}.jsonl").symlink_to(setup.folder / "notes.jsonl")
    assert len(prune(setup, before=BEGIN * 2, max_journals=0).kept) == 1
    assert len(list(setup.folder.iterdir())) == 4


def test_a_file_does_not_delete_the_anchor_of_another_session(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    write_closed(setup, "a", "b")
    setup.journal.path_of("a").write_bytes(setup.journal.path_of("b").read_bytes())
    assert "another session" in str(prune(setup, before=BEGIN + 1).kept[0])
    assert anchored_sessions(setup) == ["a", "b"]  # the exchange of `a` stays visible
    assert verify([setup.folder], anchors=setup.anchors).has_failed


def test_a_missing_folder_contains_nothing(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.folder.rmdir()
    assert prune(setup, before=None, max_journals=0) == PruneResult((), ())
    setup.folder.write_text("")
    with pytest.raises(JournalError, match="cannot be deleted"):
        prune(setup, before=None, max_journals=0)


@pytest.mark.slow
def test_a_hundred_thousand_sessions_leave_max_journals_files(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for number in range(100_000):
        setup.write(SessionStarted(f"s{number}"), SessionEnded(f"s{number}"))
        if number % 1000 == 999:
            prune(setup, before=None, max_journals=1000)
    assert len(list(setup.folder.iterdir())) == 1000
    assert len(anchored_sessions(setup)) == 1000
    assert not verify([setup.folder], anchors=setup.anchors).has_failed
