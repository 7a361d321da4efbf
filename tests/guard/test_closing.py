"""A guard lets go of all that it holds: when it is closed, dropped, or could not open a session."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import msgspec
import pytest

from policyguard import Effect, Guard
from policyguard.guard.replay import ReplaySession
from policyguard.guard.session import Session
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.model.event import Admitted, Closed, Completed, Event, Started, TurnStarted
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
CAPS = Caps(constraints=10, evidence=10, anchors=10)


def load(folder: Path, store: SqliteStore | None = None, more: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + more)
    return Guard.load(file, store=store or folder / "state" / "store.db")


def call(session: Session, number: int = 0) -> bool:
    decision = session.check("read", {"n": number})
    session.record(decision, result="fine")
    return decision.allowed


def written(guard: Guard, session: str = "s") -> list[type[Event]]:
    assert guard._journal is not None
    return [type(event) for event in guard._journal.read_events(session)]


def open_files(folder: Path) -> list[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:
            continue  # the one that the folder itself was read by
    return sorted(
        Path(link).name for link in links if link.startswith(str(folder)) and "lock" not in link
    )


def test_a_session_of_a_closed_guard_goes_on_under_another(tmp_path: Path) -> None:
    with load(tmp_path) as first:
        session = first.session("s", project="p")
        assert call(session)
        assert open_files(tmp_path) != []
    assert open_files(tmp_path) == []
    second = load(tmp_path)
    again = second.session("s", project="p")
    assert written(second) == [Started, Admitted, Completed]
    assert [call(again, number) for number in range(3)] == [True, True, False]


def test_a_closed_guard_refuses_all_calls_and_writes_nothing(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision = session.check("read")
    guard.close()
    guard.close()
    assert session.closed
    refused = session.check("read")
    assert refused.violations[0].reason == "closed"
    assert "the guard is closed" in refused.message
    assert "load another guard" in refused.message
    session.record(decision, result="too late")
    session.close()
    with pytest.raises(RuntimeError, match="the guard is closed: load another"):
        guard.session("t")
    assert open_files(tmp_path) == []
    other = load(tmp_path)
    again = other.session("s")
    assert written(other) == [Started, Admitted]
    again.end()
    assert "open a new session" in again.check("read").message


def test_what_was_on_lease_is_given_back(tmp_path: Path) -> None:
    guard = load(tmp_path)
    for number in range(5):
        session = guard.session(f"s{number}", project="p")
        assert call(session)
    guard.close()
    other = load(tmp_path)
    sessions = [other.session(f"t{number}", project="p") for number in range(12)]
    assert sum(call(session, number) for session in sessions for number in range(3)) == 35


def test_a_store_that_was_given_stays_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS)
    with load(tmp_path, store) as guard:
        call(guard.session("s", project="p"))
    assert "store.db" in open_files(tmp_path)
    with load(tmp_path, store) as guard:
        assert call(guard.session("s", project="p"))
    store.close()
    assert open_files(tmp_path) == []


def test_a_guard_without_a_store_may_be_closed(tmp_path: Path) -> None:
    with Guard.load("core") as guard:
        session = guard.session("s")
        assert session.check("read").allowed
    assert not session.check("read").allowed


def test_what_cannot_be_written_at_the_end_is_told_and_all_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "state" / "store.db"
    guard = load(tmp_path, SqliteStore(path, caps=CAPS, timeout=0.05))
    call(guard.session("s", project="p"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="has been locked by another process"):
        guard.close()
    other.close()
    assert [name for name in open_files(tmp_path) if name.endswith(".jsonl")] == []
    again = load(tmp_path).session("s", project="p")
    assert [call(again, number) for number in range(3)] == [True, True, False]


def test_a_guard_that_nobody_has_any_more_holds_nothing(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s", project="p")
    call(session)
    with pytest.raises(SessionBusyError):
        load(tmp_path).session("s")
    del guard, session
    gc.collect()
    assert open_files(tmp_path) == []
    assert call(load(tmp_path).session("s", project="p"))


def test_a_session_that_could_not_be_opened_is_not_held(tmp_path: Path) -> None:
    first = load(tmp_path)
    session = first.session("s")
    call(session)
    assert first._journal is not None
    path = first._journal.path_of("s")
    first.close()
    was = path.read_text()
    path.write_text(was.replace('"call":"c1"', '"call":"c7"', 1))
    guard = load(tmp_path)
    for _ in range(2):
        with pytest.raises(AlteredError):
            guard.session("s")
    path.write_text(was)
    assert [call(guard.session("s"), number) for number in range(3)] == [True, True, False]
    assert guard.session("s").id == "s"


def test_a_session_whose_beginning_could_not_be_written_has_not_begun(tmp_path: Path) -> None:
    guard = load(tmp_path)
    folder = tmp_path / "state" / "journal"
    away = folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    for _ in range(2):
        with pytest.raises(JournalError):
            guard.session("s", agent="a")
    folder.unlink()
    away.rename(folder)
    session = guard.session("s", agent="a")
    assert call(session)
    session.end()
    assert written(guard) == [Started, Admitted, Completed, Closed]


def test_what_is_reported_after_the_guard_is_closed_counts_nowhere_and_says_so(
    tmp_path: Path,
) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision = session.check("read")
    guard.close()
    late = session.record(decision, result="too late")
    assert not late.counted
    assert late.outcome.ok
    assert "the guard is closed: load another guard" in late.errors[0].error
    session.release(decision)


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_can_be_said_to_a_session_that_is_over(tmp_path: Path, whole: bool) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    asked = msgspec.structs.replace(session.check("read"), effect=Effect.ASK)
    if whole:
        guard.close()
    else:
        session.end()
    says = "the guard is closed" if whole else "the session is over: open a new session"
    for say in (
        session.turn,
        lambda: session.spend(tokens=1),
        lambda: session.grant("own", 1, by="ana"),
        lambda: session.approve(asked, by="ana"),
    ):
        with pytest.raises(RuntimeError, match=says):
            say()


def test_a_session_that_is_over_takes_nothing_more(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    decision, other = session.check("read"), session.check("read", {"n": 1})
    session.end()
    assert not session.record(decision, result="too late").counted
    session.release(other)
    assert not session.check("read").allowed
    assert ReplaySession(session).apply(TurnStarted("s")) is None
    assert written(guard) == [Started, Admitted, Admitted, Closed]
    assert [name for name in open_files(tmp_path) if name.endswith(".jsonl")] == []


def test_who_hears_that_a_session_is_over_finds_it_closed(tmp_path: Path) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    heard: list[tuple[bool, bool]] = []

    def listener(_: Event) -> None:
        heard.append((session.check("read").allowed, guard.session("s") is session))

    guard.on(listener, Closed)
    session.end()
    assert heard == [(False, False)]
    assert written(guard) == [Started, Closed, Started]


@pytest.mark.parametrize("evicted", [True, False])
def test_a_session_whose_end_cannot_be_written_goes_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, evicted: bool
) -> None:
    guard = load(tmp_path, more="bounds: {sessions: 2}\n")
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


def test_a_session_whose_end_cannot_be_anchored_leaves_its_file(tmp_path: Path) -> None:
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
    assert written(guard) == [Started, Closed]
