"""Writing events: files, order, and the content of lines."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.journal.errors import JournalError
from policyguard.journal.folder import SUFFIX, file_name, is_journal_name
from policyguard.journal.format import decode
from policyguard.journal.show import read_lines
from policyguard.model.event import (
    Admitted,
    Completed,
    Refused,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from policyguard.store.errors import StoreError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.sqlite.store import SqliteStore
from tests.journal.setup import CAPS, SECOND, JournalSetup, run


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    assert [decode(line) for line in setup.lines()] == run()
    assert list(setup.journal.read_events("s")) == run()
    assert list(setup.journal.read_events("nobody")) == []


def test_each_line_holds_the_hash_of_all_its_bytes_and_of_the_line_before(tmp_path: Path) -> None:
    """As `docs/journal.md` describes it, without our own code."""
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    prev = None
    for number, line in enumerate(setup.lines()):
        value = json.loads(line)
        assert value["seq"] == number
        if prev is None:
            genesis = b"policyguard journal 1\0" + value["chain"].encode() + b"\0s"
            prev = hashlib.sha256(genesis).hexdigest()
        assert value["prev"] == prev
        prev = value["hash"]
        assert hashlib.sha256(line[: line.rindex(b',"hash"')]).hexdigest() == prev


def test_each_session_has_a_chain_and_a_file_of_its_own(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for one, other in zip(run("a"), run("b"), strict=True):
        setup.write(one, other)
    assert list(setup.journal.read_events("a")) == run("a")
    assert list(setup.journal.read_events("b")) == run("b")
    first = [json.loads(setup.lines(session)[0]) for session in "ab"]
    assert first[0]["chain"] != first[1]["chain"]


def test_a_line_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    for number, event in enumerate(run()):
        setup.write(event)
        assert len(setup.lines()) == number + 1


def test_folder_and_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        setup = JournalSetup(tmp_path)
        setup.write(*run())
    finally:
        os.umask(before)
    assert stat.S_IMODE(setup.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(setup.journal.path_of("s").stat().st_mode) == 0o600


@given(st.text())
def test_a_session_id_never_becomes_a_path(session: str) -> None:
    name = file_name(session)
    assert Path(name).name == name
    assert not name.startswith(".")
    assert name.isascii()
    assert len(name) <= 80
    assert is_journal_name(Path(name))


def test_names_are_readable_and_differ(tmp_path: Path) -> None:
    assert file_name("run-7").startswith("run-7-")
    assert file_name("../../etc/passwd").startswith("etc_passwd-")
    assert file_name("x" * 50).partition("-")[0] == "x" * 40, "else its journal is not found"
    assert len({file_name(name) for name in ("a/b", "a_b", "A/B", "a:b", "", ".", "..")}) == 7
    setup = JournalSetup(tmp_path)
    for session in ("../up", "/abs", "a\x00b", "\ud800", "", "x" * 10_000):
        setup.write(SessionStarted(session))
    assert len(list(setup.folder.iterdir())) == 6
    assert [path for path in tmp_path.iterdir() if path != setup.folder] == []
    assert all(path.suffix == SUFFIX for path in setup.folder.iterdir())


@pytest.mark.parametrize("sync", [False, True])
def test_durability_does_not_change_what_is_written(tmp_path: Path, sync: bool) -> None:
    setup = JournalSetup(tmp_path, sync=sync)
    setup.write(*run())
    assert list(setup.journal.read_events("s")) == run()


def test_only_what_is_to_survive_power_loss_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line; and the folder once, when it gets the file."""
    synced: list[str] = []
    sync_to_disk = os.fsync

    def fsync(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        synced.append("folder" if stat.S_ISDIR(mode) else "file")
        sync_to_disk(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    setup = JournalSetup(tmp_path / "power", sync=True)
    setup.write(SessionStarted("s"), TurnStarted("s"))
    setup.restart()
    setup.write(TurnStarted("s"))
    assert synced == ["folder", "file", "file", "file"]
    JournalSetup(tmp_path / "process", sync=False).write(SessionStarted("s"), TurnStarted("s"))
    assert len(synced) == 4


def count(setup: JournalSetup, session: str = "s") -> int:
    anchor = setup.anchors.get(session)
    return anchor.count if anchor is not None else 0


def test_anchors_come_with_refusals_turns_and_the_end(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    counts = []
    for event in run():
        setup.write(event)
        counts.append(count(setup))
    assert counts == [0, 2, 2, 2, 2, 2, 2, 8, 8, 10]
    anchor = setup.anchors.get("s")
    assert anchor is not None
    assert anchor.size == setup.journal.path_of("s").stat().st_size
    assert anchor.hash == json.loads(setup.lines()[-1])["hash"]
    assert anchor.chain == json.loads(setup.lines()[0])["chain"]


def test_anchors_come_each_second_when_asked_for_and_at_the_end(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"), Admitted("s", call="c1"))
    assert count(setup) == 0
    setup.journal.write(Completed("s", call="c1"), anchor=True)
    assert count(setup) == 3
    setup.write(Admitted("s", call="c2"))
    setup.now += SECOND - 1
    setup.write(Completed("s", call="c2"))
    assert count(setup) == 3
    setup.now += 1
    setup.write(Admitted("s", call="c3"))
    assert count(setup) == 6
    setup.write(Completed("s", call="c3"))
    setup.journal.close()
    assert count(setup) == 7


def test_a_failed_anchor_is_tried_again_after_a_second(tmp_path: Path) -> None:
    """Not at each event: each attempt may wait for a locked store."""
    path = tmp_path / "store.db"
    with closing(SqliteStore(path, caps=CAPS, timeout=0.01)) as store:
        setup = JournalSetup(tmp_path, anchors=store.anchors)
        setup.write(SessionStarted("s"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for second in (1, 2):
                setup.now = second * SECOND
                with pytest.raises(StoreError):
                    setup.write(SessionStarted("s"))
                setup.write(SessionStarted("s"), SessionStarted("s"))
            other.execute("ROLLBACK")
        setup.now = 3 * SECOND
        setup.write(SessionStarted("s"))
        anchor = store.anchors.get("s")
        assert anchor is not None
        assert anchor.count == len(setup.lines("s"))


@pytest.mark.parametrize(
    "end",
    [
        lambda setup: setup.journal.close_session("s"),
        lambda setup: setup.journal.close(),
        lambda setup: setup.write(SessionEnded("s")),
    ],
    ids=["session closed", "journal closed", "session ended"],
)
def test_a_session_can_be_opened_after_its_last_anchor_failed(
    tmp_path: Path, end: Callable[[JournalSetup], None]
) -> None:
    """Also by a caller who has kept the error."""
    path = tmp_path / "store.db"
    with closing(SqliteStore(path, caps=CAPS, timeout=0.01)) as store:
        setup = JournalSetup(tmp_path, anchors=store.anchors)
        setup.write(SessionStarted("s"), Admitted("s", call="c"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as kept:
                end(setup)
            other.execute("ROLLBACK")
        setup.reopen().write(SessionEnded("s"))
        assert "locked" in str(kept.value)


def test_few_files_are_open_however_many_sessions_write(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, max_open_files=3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        for number in range(20):
            setup.write(Admitted(f"s{number}", call="c"))
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 3
    assert all(len(setup.lines(f"s{number}")) == 3 for number in range(20))
    assert setup.findings == []
    setup.journal.close()


def test_the_least_recently_used_file_is_closed_first(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path, max_open_files=2)
    for session in "abac":
        setup.write(SessionStarted(session))
    with pytest.raises(JournalError, match="is being written"):
        setup.reopen().write(SessionStarted("a"))
    setup.reopen().write(SessionStarted("b"))


def test_a_file_closed_for_one_that_cannot_be_opened_is_reopened(
    tmp_path: Path,
) -> None:
    setup = JournalSetup(tmp_path, max_open_files=1)
    setup.write(SessionStarted("s"))
    other = setup.reopen()
    other.write(SessionStarted("t"))
    with pytest.raises(JournalError, match="is being written"):
        setup.write(SessionStarted("t"))
    setup.write(TurnStarted("s"))
    assert list(setup.journal.read_events("s")) == [SessionStarted("s"), TurnStarted("s")]


def test_a_session_id_too_long_for_a_line(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s" * 10_000))
    assert list(setup.journal.read_events("s" * 10_000)) == [SessionStarted("s" * 10_000)]
    with pytest.raises(JournalError, match="id has 10,001 characters; use an id of at most 10,000"):
        setup.write(SessionStarted("s" * 10_001))


def test_a_reopened_session_continues_its_chain(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run())
    setup.write(*run())
    setup.restart()
    setup.write(*run())
    assert list(setup.journal.read_events("s")) == run() * 3


def test_a_session_has_one_writer_at_a_time(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"))
    other = setup.reopen()
    gc.collect()  # files of other tests may be closed at any time
    opened = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(JournalError, match="is being written by another process or guard; end"):
        other.write(SessionStarted("s"))
    assert len([*Path("/proc/self/fd").iterdir()]) <= opened
    other.write(SessionStarted("t"))
    setup.write(SessionEnded("s"))
    other.write(TurnStarted("s"))
    other.close()


HOSTILE = {
    "an object": object(),
    "a set": {1},
    "not a number": float("nan"),
    "infinity": float("inf"),
    "half a surrogate pair": "\ud800",
    "a huge integer": 10**5000,
    "too deep": json.loads("[" * 250 + "]" * 250),
    "too large": "x" * 20_000,
}
CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("value", [*HOSTILE.values(), CYCLE], ids=[*HOSTILE, "a cycle"])
def test_any_arguments_leave_a_readable_line(tmp_path: Path, value: object) -> None:
    setup = JournalSetup(tmp_path)
    refused = Refused("s", call="c", tool="t", args={"a": value}, violations=("bounds/arguments",))
    setup.write(SessionStarted("s"), refused, SessionEnded("s"))
    _, read, _ = setup.journal.read_events("s")
    assert isinstance(read, Refused)
    assert read.args is None
    assert (read.tool, read.violations) == ("t", ("bounds/arguments",))


def test_a_result_that_is_too_long_is_cut_and_marked(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(Completed("s", call="c", text="x" * 20_000, error="e\ud800", meta={"a": 10**5000}))
    (line,) = setup.lines()
    (read,) = setup.journal.read_events("s")
    assert isinstance(read, Completed)
    assert read.text == "x" * 10_000 + "… [10000 characters omitted]"
    assert (read.error, read.meta) == ("e\\ud800", {})
    assert json.loads(line)["masked"] is True


def test_events_within_bounds_are_unchanged(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    args = {"a": [1, 1.5, True, None, "ä\n\u2028", {"b": {}}], "big": 2**64}
    setup.write(
        Admitted("s", call="c", args=args),
        Completed("s", call="c", text="y" * 9000, meta={"m": "z" * 5000}),
    )
    admitted, completed = setup.journal.read_events("s")
    assert isinstance(admitted, Admitted)
    assert admitted.args == args
    assert isinstance(completed, Completed)
    assert (len(completed.text), len(completed.meta["m"])) == (9000, 5000)
    assert b"masked" not in b"".join(setup.lines())


def test_anchors_of_a_memory_store(tmp_path: Path) -> None:
    store = MemoryStore(caps=CAPS)
    setup = JournalSetup(tmp_path, anchors=store.anchors)
    setup.write(*run())
    assert [anchor.count for anchor in store.anchors.all()] == [10]


@pytest.mark.parametrize("act", ["file removed", "folder removed", "folder moved", "replaced"])
def test_a_missing_file_is_noticed_within_a_second(tmp_path: Path, act: str) -> None:
    setup = JournalSetup(tmp_path)
    events = run()
    setup.write(*events[:2])
    path = setup.journal.path_of("s")
    if act == "folder moved":
        setup.folder.rename(tmp_path / "elsewhere")
    else:
        path.unlink()
    if act == "folder removed":
        setup.folder.rmdir()
    if act == "replaced":
        path.touch()
    setup.now += SECOND
    with pytest.raises(JournalError, match=r"(gone|another file now).*put it back"):
        setup.write(events[2])
    with pytest.raises(JournalError):  # the file is looked up again
        setup.write(events[2])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    os.mkfifo(setup.journal.path_of("s"))
    with pytest.raises(JournalError, match=r"is not a regular file; move it away") as raised:
        list(setup.journal.read_events("s"))
    assert (raised.value.path, raised.value.reason) == (
        setup.journal.path_of("s"),
        "is not a regular file",
    )


def test_a_torn_line_is_followed_as_it_is_repaired(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"one\ntw")
    contents = iter([b"one\ntwo\n", b"one\ntwo\nthree\n"])
    lines = read_lines(file, lambda: file.write_bytes(next(contents)))
    assert [next(lines) for _ in range(3)] == [b"one", b"two", b"three"]


def test_a_disk_that_fails_while_a_journal_is_opened_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("policyguard.journal.journal_file.recover", fail)
    with pytest.raises(JournalError, match="cannot be written: Input/output error; check the disk"):
        JournalSetup(tmp_path).write(SessionStarted("s"))
