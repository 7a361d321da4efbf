"""A guard releases what it holds: when closed, dropped, or if a session fails to open."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import msgspec
import pytest

from policyguard import ClosedError, Effect, Guard
from policyguard.guard.replay import ReplaySession
from policyguard.guard.session import Session
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore

POLICY = """
policyguard: 1
name: closing
budgets:
  own: {calls: 3}
  shared: {calls: 40, per: project}
"""
CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)


def load(folder: Path, store: SqliteStore | None = None, extra: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + extra)
    return Guard.load(file, store=store or folder / "state" / "store.db")


def call(session: Session, number: int = 0) -> bool:
    decision = session.check("read", {"n": number})
    session.record(decision, result="fine")
    return decision.allowed


def journal_events(guard: Guard, session: str = "s") -> list[type[Event]]:
    assert guard._journal is not None
    return [type(event) for event in guard._journal.read_events(session)]


def open_files(folder: Path) -> list[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:
            continue  # the handle that read this folder
    return sorted(
        Path(link).name for link in links if link.startswith(str(folder)) and "lock" not in link
    )


def test_another_guard_can_resume_a_session_of_a_closed_guard(tmp_path: Path) -> None:
    with load(tmp_path) as first:
        session = first.session("s", project="p")
        assert call(session)
        assert open_files(tmp_path) != []
    assert open_files(tmp_path) == []
    second = load(tmp_path)
    reopened = second.session("s", project="p")
    assert journal_events(second) == [SessionStarted, Admitted, Completed]
    assert [call(reopened, number) for number in range(3)] == [True, True, False]


def test_closed_guard_refuses_calls_and_writes_nothing(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision = session.check("read")
    guard.close()
    guard.close()
    assert session.closed
    refused = session.check("read")
    assert refused.violations[0].reason == "closed"
    assert "the guard is closed" in refused.message
    assert "load another guard" in refused.errors[0].error
    session.record(decision, result="too late")
    session.close()
    with pytest.raises(RuntimeError, match="the guard is closed: load another"):
        guard.session("t")
    assert open_files(tmp_path) == []
    other = load(tmp_path)
    reopened = other.session("s")
    assert journal_events(other) == [SessionStarted, Admitted]
    reopened.end()
    assert "open a new session" in reopened.check("read").errors[0].error


def test_closing_returns_leases(tmp_path: Path) -> None:
    guard = load(tmp_path)
    for number in range(5):
        session = guard.session(f"s{number}", project="p")
        assert call(session)
    guard.close()
    other = load(tmp_path)
    sessions = [other.session(f"t{number}", project="p") for number in range(12)]
    assert sum(call(session, number) for session in sessions for number in range(3)) == 35


def test_store_passed_by_the_host_stays_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    with load(tmp_path, store) as guard:
        call(guard.session("s", project="p"))
    assert "store.db" in open_files(tmp_path)
    with load(tmp_path, store) as guard:
        assert call(guard.session("s", project="p"))
    store.close()
    assert open_files(tmp_path) == []


def test_closed_guard_says_so_even_of_a_session_that_is_open_elsewhere(tmp_path: Path) -> None:
    guard = load(tmp_path)
    guard.close()
    with load(tmp_path) as other:
        other.session("s")
        with pytest.raises(ClosedError, match="load another"):
            guard.session("s")


def test_guard_without_a_store_can_be_closed(tmp_path: Path) -> None:
    with Guard.load("core") as guard:
        session = guard.session("s")
        assert session.check("read").allowed
    assert not session.check("read").allowed


def test_failed_write_on_close_is_raised_and_files_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    guard = load(tmp_path, SqliteStore(path, caps=CAPS, timeout=0.05))
    call(guard.session("s", project="p"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="has been locked by another process"):
        guard.close()
    other.close()
    assert [name for name in open_files(tmp_path) if name.endswith(".jsonl")] == []
    reopened = load(tmp_path).session("s", project="p")
    assert [call(reopened, number) for number in range(3)] == [True, True, False]


def test_garbage_collected_guard_releases_its_files_and_locks(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s", project="p")
    call(session)
    with pytest.raises(SessionBusyError):
        load(tmp_path).session("s")
    del guard, session
    gc.collect()
    assert open_files(tmp_path) == []
    assert call(load(tmp_path).session("s", project="p"))


def test_session_that_failed_to_open_is_not_locked(tmp_path: Path) -> None:
    first = load(tmp_path)
    session = first.session("s")
    call(session)
    assert first._journal is not None
    path = first._journal.path_of("s")
    first.close()
    original = path.read_text()
    path.write_text(original.replace('"call":"c1"', '"call":"c7"', 1))
    guard = load(tmp_path)
    for _ in range(2):
        with pytest.raises(AlteredError):
            guard.session("s")
    path.write_text(original)
    assert [call(guard.session("s"), number) for number in range(3)] == [True, True, False]
    assert guard.session("s").id == "s"


def test_session_whose_start_cannot_be_written_is_not_started(tmp_path: Path) -> None:
    guard = load(tmp_path)
    folder = tmp_path / "state" / "journal"
    moved_folder = folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    for _ in range(2):
        with pytest.raises(JournalError):
            guard.session("s", agent="a")
    folder.unlink()
    moved_folder.rename(folder)
    session = guard.session("s", agent="a")
    assert call(session)
    session.end()
    assert journal_events(guard) == [SessionStarted, Admitted, Completed, SessionEnded]


def test_report_to_a_closed_guard_is_not_counted_and_has_an_error(
    tmp_path: Path,
) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision = session.check("read")
    guard.close()
    assert session.in_flight == {}
    recorded = session.record(decision, result="too late")
    assert not recorded.counted
    assert recorded.outcome.ok
    assert "the guard is closed: load another guard" in recorded.errors[0].error
    session.release(decision)


@pytest.mark.parametrize("close_guard", [True, False])
def test_actions_on_an_ended_session_are_errors(tmp_path: Path, close_guard: bool) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision = msgspec.structs.replace(session.check("read"), effect=Effect.ASK)
    if close_guard:
        guard.close()
    else:
        session.end()
    message = "the guard is closed" if close_guard else "the session is over: open a new session"
    for action in (
        session.turn,
        lambda: session.spend(tokens=1),
        lambda: session.grant("own", 1, by="ana"),
        lambda: session.approve(decision, by="ana"),
    ):
        with pytest.raises(RuntimeError, match=message):
            action()


def test_ended_session_accepts_no_more_events(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision, other = session.check("read"), session.check("read", {"n": 1})
    session.end()
    assert not session.record(decision, result="too late").counted
    session.release(other)
    assert not session.check("read").allowed
    assert ReplaySession(session).apply(TurnStarted("s")) is None
    assert journal_events(guard) == [SessionStarted, Admitted, Admitted, SessionEnded]
    assert [name for name in open_files(tmp_path) if name.endswith(".jsonl")] == []


def test_session_is_closed_when_listeners_receive_its_end(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    states: list[tuple[bool, bool]] = []

    def listener(_: Event) -> None:
        states.append((session.check("read").allowed, guard.session("s") is session))

    guard.on(listener, SessionEnded)
    session.end()
    assert states == [(False, False)]
    assert journal_events(guard) == [SessionStarted, SessionEnded, SessionStarted]


@pytest.mark.parametrize("evicted", [True, False])
def test_session_is_released_even_if_its_end_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, evicted: bool
) -> None:
    guard = load(tmp_path, extra="bounds: {sessions: 2}\n")
    first, _ = guard.session("s"), guard.session("t")
    assert guard._journal is not None
    guard._journal.path_of("s").unlink()
    if evicted:
        assert guard.session("u").check("read").allowed
        assert "session 's' was evicted" in caplog.text
        assert "was removed or replaced" in caplog.text
    else:
        with pytest.raises(JournalError, match="was removed or replaced"):
            first.end()
        first.end()
    assert first.closed
    assert guard._constraint_sync is not None
    guard._constraint_sync.store.lock_session("s").release()
    for name in "vw":
        guard.session(name)


def test_session_closes_its_file_even_if_its_end_cannot_be_anchored(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    guard = load(tmp_path, SqliteStore(path, caps=CAPS, timeout=0.05))
    session = guard.session("s")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        session.end()
    other.close()
    assert session.closed
    assert [name for name in open_files(tmp_path) if name.endswith(".jsonl")] == []
    assert journal_events(guard) == [SessionStarted, SessionEnded]
