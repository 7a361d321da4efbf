"""What cannot be written down has not happened; what is written and not anchored has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policyguard import Guard, Session
from policyguard.journal.errors import JournalError
from policyguard.journal.journal_file import JournalFile
from policyguard.model.event import Admitted, Event, Released, Started, TurnStarted
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore

POLICY = """
policyguard: 1
name: unwritten
budgets:
  calls: {calls: 3, per: session, extend: 2}
  spend: {cost: 1.00, per: session}
"""
SHARED = "  all: {calls: 9, per: global, extend: 1}\n"
CAPS = Caps(constraints=10, evidence=10, anchors=10)


def load(folder: Path, more: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + more)
    store = SqliteStore(folder / "state" / "store.db", caps=CAPS, timeout=0.05)
    return Guard.load(file, store=store)


@contextmanager
def full_disk(session: str = "", kind: str = "") -> Iterator[None]:
    """No line can be written, or none of one session or kind."""
    whole = JournalFile.append

    def append(writer: JournalFile, event: str, masked: bool, anchor: bool) -> None:
        if session in ("", writer.session) and f'"{kind}' in event:
            raise JournalError(writer.path, "cannot be written: it is full", "make room")
        whole(writer, event, masked, anchor)

    with pytest.MonkeyPatch.context() as world:
        world.setattr(JournalFile, "append", append)
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The store is held by somebody else."""
    other = sqlite3.connect(folder / "state" / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.close()


def kinds(guard: Guard, session: str = "s") -> list[type[Event]]:
    assert guard._journal is not None
    return [type(event) for event in guard._journal.read_events(session)]


def made(session: Session) -> int:
    """How many more calls are let through."""
    return sum(session.check("x", {"more": number}).allowed for number in range(20))


@pytest.mark.parametrize(
    "say",
    [
        lambda session: session.grant("calls", by="ana"),
        lambda session: session.grant("all", 20, by="ana"),
        lambda session: session.spend(cost=0.6),
        Session.turn,
    ],
)
def test_what_cannot_be_written_has_not_happened(
    tmp_path: Path, say: Callable[[Session], None]
) -> None:
    guard = load(tmp_path, SHARED)
    session = guard.session("s")
    told: list[Event] = []
    guard.on(told.append)
    with full_disk():
        for _ in range(3):
            with pytest.raises(JournalError, match="make room"):
                say(session)
    assert told == []
    assert session._state.turn == 0
    assert made(session) == 3
    assert sum(made(guard.session(name)) for name in "tuv") == 6


def test_a_call_gives_its_place_back_though_that_cannot_be_written(tmp_path: Path) -> None:
    session = load(tmp_path).session("s")
    decision = session.check("x")
    with full_disk(), pytest.raises(JournalError):
        session.release(decision)
    assert made(session) == 3


def test_what_is_written_and_not_anchored_has_happened_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    with locked(tmp_path):
        session.turn()
    assert "is written, and not anchored" in caplog.text
    assert kinds(guard) == [Started, TurnStarted]
    assert session._state.turn == 1


def test_an_admission_that_is_written_and_refused_all_the_same_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.journal.journal_file._ANCHOR_INTERVAL", 0)
    with load(tmp_path) as guard:
        session = guard.session("s")
        with locked(tmp_path):
            decision = session.check("y")
        assert not decision.allowed
        assert "locked" in decision.errors[0].error
        assert kinds(guard) == [Started, Admitted, Released]
    assert made(load(tmp_path).session("s")) == 3


def test_a_sub_agents_call_that_its_payer_cannot_know_of_is_taken_back(tmp_path: Path) -> None:
    with load(tmp_path) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        with full_disk("parent"):
            assert not child.check("y").allowed
        assert kinds(guard, "child") == [Started, Admitted, Released]
    assert made(load(tmp_path).session("child")) == 3


def test_what_a_call_that_is_taken_back_drew_is_given_back_in_every_journal(tmp_path: Path) -> None:
    heard: list[str] = []
    with load(tmp_path) as guard:
        guard.on(lambda event: heard.append(type(event).__name__), Admitted, Released)
        top = guard.session("top")
        child = guard.session("child", parent=guard.session("parent", parent=top))
        with full_disk("top"):  # the nearest payer has been told by then
            assert not child.check("y").allowed
        assert heard == ["Admitted", "Released"]
    guard = load(tmp_path)
    assert made(guard.session("child")) == 3


def test_a_yes_that_had_to_be_repeated_raises_its_budget_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    asks = "budgets: {b: {calls: 1, per: session, effect: ask, extend: 1}}"
    file.write_text(f"policyguard: 1\nname: asks\n{asks}\n")
    session = Guard.load(file, store=tmp_path / "state" / "store.db").session("s")
    assert session.check("x", {"n": 1}).allowed
    asked = session.check("x", {"n": 2})
    for _ in range(3):
        with full_disk(kind="approved"), pytest.raises(JournalError):
            session.approve(asked, by="ann")
    assert session.approve(asked, by="ann")
    assert [session.check("x", {"n": n}).allowed for n in (2, 3, 4)] == [True, False, False]


def test_a_grant_that_the_store_does_not_take_has_lifted_the_halt(tmp_path: Path) -> None:
    """It stands in the journal: the session is as it will be after a restart."""
    file = tmp_path / "policy.yaml"
    halts = "budgets: {b: {calls: 1, per: global, effect: halt, extend: 1}}"
    file.write_text(f"policyguard: 1\nname: halts\n{halts}\n")
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.05)
    session = Guard.load(file, store=store).session("s")
    assert [session.check("x", {"n": n}).effect for n in (1, 2)] == ["allow", "halt"]
    with locked(tmp_path), pytest.raises(StoreError):
        session.grant("b", by="ann")
    (over,) = session.decide("x").violations
    assert over.id == "budgets/b"


def test_a_policy_in_observe_mode_refuses_nothing_for_a_disk_that_is_full(tmp_path: Path) -> None:
    session = load(tmp_path, "mode: observe\n").session("s")
    with full_disk():
        decision = session.check("x")
    assert decision.allowed
    assert decision.errors


def test_a_sub_agents_spending_that_its_payer_cannot_know_of_has_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = load(tmp_path)
    parent = guard.session("parent")
    child = guard.session("child", parent=parent)
    with full_disk("parent"):
        child.spend(cost=1)
    assert "journals lack charges" in caplog.text
    assert not parent.decide("x").allowed
