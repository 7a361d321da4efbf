"""A long journal is read and rebuilt while other sessions go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from policyguard import ClosedError, Guard
from policyguard.guard.session import Session
from policyguard.journal.journal import Journal
from policyguard.model.event import Event
from policyguard.store.errors import SessionBusyError
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps

POLICY = "policyguard: 1\nname: p\nbudgets: {b: {calls: 1000}}\n"
WAIT = 10.0


def _guard(folder: Path) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db")


def _write_calls(guard: Guard, session: str, parent: Session | None = None) -> None:
    opened = guard.session(session, parent=parent)
    for number in range(5):
        opened.record(opened.check("read", {"n": number}), result="x")
    opened.close()


class _PausedReading:
    """Journals that stop in the middle of a session until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: str) -> None:
        self.is_reading, self.may_go_on = threading.Event(), threading.Event()
        self._read: Callable[[Journal, str], Iterator[Event]] = Journal.read_events
        self._session = session
        monkeypatch.setattr(Journal, "read_events", lambda journal, id_: self._pause(journal, id_))

    def _pause(self, journal: Journal, session: str) -> Iterator[Event]:
        for number, event in enumerate(self._read(journal, session)):
            if session == self._session and number == 4:
                self.is_reading.set()
                assert self.may_go_on.wait(WAIT)
            yield event


def _start(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def test_other_sessions_go_on_while_one_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _guard(tmp_path) as guard:
        _write_calls(guard, "long")
        other = guard.session("other")
        reading = _PausedReading(monkeypatch, "long")
        first, opened = _start(lambda: guard.session("long"))
        assert reading.is_reading.wait(WAIT)
        checking, decisions = _start(lambda: (other.check("x"), guard.session("new").check("x")))
        checking.join(WAIT / 2)
        is_stuck = checking.is_alive()
        second, opened_too = _start(lambda: guard.session("long"))
        second.join(0.1)
        waits = second.is_alive()
        reading.may_go_on.set()
        for thread in (first, second, checking):
            thread.join(WAIT)
        assert not is_stuck
        assert decisions
        assert waits  # one session of an id
        assert opened[0] is opened_too[0]
        assert isinstance(opened[0], Session)
        assert opened[0]._state.cel_session["calls"] == 5
        assert opened[0].check("read").id == "c6"


@pytest.mark.parametrize("entry", ["enter", "end"])
def test_entering_or_ending_a_closed_session_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    with _guard(tmp_path) as guard:
        _write_calls(guard, "long")
        closed = guard.session("long")
        closed.close()
        other = guard.session("other")
        reading = _PausedReading(monkeypatch, "long")
        opening, _ = _start(closed.__enter__ if entry == "enter" else closed.end)
        assert reading.is_reading.wait(WAIT)
        checking, decisions = _start(lambda: other.check("x"))
        checking.join(WAIT / 2)
        is_stuck = checking.is_alive()
        reading.may_go_on.set()
        opening.join(WAIT)
        checking.join(WAIT)
        assert not is_stuck
        assert decisions
        assert closed.closed is (entry == "end")


def test_guard_that_is_closed_meanwhile_opens_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = _guard(tmp_path)
    _write_calls(guard, "long")
    reading = _PausedReading(monkeypatch, "long")
    opening, results = _start(lambda: guard.session("long"))
    assert reading.is_reading.wait(WAIT)
    guard.close()
    reading.may_go_on.set()
    opening.join(WAIT)
    assert isinstance(results[0], ClosedError)
    with _guard(tmp_path) as next_guard:  # nothing keeps it locked
        assert next_guard.session("long").check("read").id == "c6"


def test_parent_that_is_closed_meanwhile_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _guard(tmp_path) as guard:
        parent = guard.session("parent")
        _write_calls(guard, "child", parent)
        reading = _PausedReading(monkeypatch, "child")
        opening, results = _start(lambda: guard.session("child", parent="parent"))
        assert reading.is_reading.wait(WAIT)
        parent.close()
        reading.may_go_on.set()
        opening.join(WAIT)
        child = results[0]
        assert isinstance(child, Session)
        reopened = guard._open_sessions.get("parent")
        assert reopened is not None
        assert reopened is not parent
        assert child._state.parent is reopened._state


def test_session_that_another_owner_opens_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _guard(tmp_path) as guard:
        _write_calls(guard, "parent")
        reading = _PausedReading(monkeypatch, "parent")
        opening, results = _start(lambda: guard.session("s", parent="parent", user="ben"))
        assert reading.is_reading.wait(WAIT)
        opened = guard.session("s", user="ann")
        reading.may_go_on.set()
        opening.join(WAIT)
        assert isinstance(results[0], ValueError)
        assert "was opened for user `ann`, not for `ben`" in str(results[0])
        assert guard.session("s", user="ann") is opened


def test_threads_that_open_each_others_ancestors_do_not_wait_forever(tmp_path: Path) -> None:
    openings = _guard(tmp_path)._open_sessions.openings
    barrier = threading.Barrier(2)

    def claim(own: str, other: str) -> str:
        with openings.claim(own):
            barrier.wait(WAIT)
            with openings.claim(other):
                return own

    pairs = [_start(lambda: claim("a", "b")), _start(lambda: claim("b", "a"))]
    for thread, _ in pairs:
        thread.join(WAIT)
    outcomes = [results[0] for _, results in pairs]
    assert sum(isinstance(one, SessionBusyError) for one in outcomes) == 1


def test_thread_that_has_waited_once_may_be_waited_for(tmp_path: Path) -> None:
    openings = _guard(tmp_path)._open_sessions.openings
    holds_a, asks_for_a, holds_b, may_release = (threading.Event() for _ in range(4))

    def wait_once() -> str:
        assert holds_a.wait(WAIT)
        asks_for_a.set()
        with openings.claim("a"):
            pass
        with openings.claim("b"):
            holds_b.set()
            may_release.wait(WAIT)
        return "b"

    def wait_later() -> str:
        with openings.claim("a"):
            holds_a.set()
            assert asks_for_a.wait(WAIT)
            first.join(0.1)  # until it waits
        assert holds_b.wait(WAIT)
        with openings.claim("a"), openings.claim("b"):
            return "a and b"

    first, held = _start(wait_once)
    second, opened = _start(wait_later)
    assert holds_b.wait(WAIT)
    second.join(0.1)
    may_release.set()
    for thread in (first, second):
        thread.join(WAIT)
    assert [*held, *opened] == ["b", "a and b"]


class LosingStore(MemoryStore):
    """A store that loses the lock of a session, as with a connection, to another host."""

    lock_generation = 0
    lost = ""

    def lock_session(self, session: str) -> Any:
        if session == self.lost:
            raise SessionBusyError(Path(session), "another host has it", "wait")
        lock = super().lock_session(session)
        return Lock(lambda: session != self.lost, lock.release)


class Lock(NamedTuple):
    """The lock of a session."""

    check: Callable[[], bool]
    release: Callable[[], None]

    @property
    def is_held(self) -> bool:
        return self.check()


def test_session_that_is_lost_while_it_is_opened_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LosingStore(caps=Caps(constraints=9, grants=9, evidence=9, anchors=9))
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    with Guard.load(file, store=store, journal=tmp_path / "journals") as guard:
        _write_calls(guard, "long")
        other = guard.session("other")
        reading = _PausedReading(monkeypatch, "long")
        opening, results = _start(lambda: guard.session("long"))
        assert reading.is_reading.wait(WAIT)
        store.lost, store.lock_generation = "long", 1
        grants = guard.grants()
        reading.may_go_on.set()
        opening.join(WAIT)
        assert grants == ()
        assert isinstance(results[0], SessionBusyError)
        assert other.check("x").allowed
