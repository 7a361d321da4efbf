"""Events that cannot be written have no effect; events that cannot be anchored have."""

from __future__ import annotations

import itertools
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policyguard import Effect, Guard, Session
from policyguard.journal.errors import JournalError
from policyguard.journal.journal_file import JournalFile
from policyguard.model.event import (
    Admitted,
    ChildCharged,
    Event,
    Released,
    SessionStarted,
    TurnStarted,
)
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore

POLICY = """
policyguard: 1
name: write-errors
budgets:
  calls: {calls: 3, per: session, extend: 2}
  spend: {cost: 1.00, per: session}
"""
SHARED = "  all: {calls: 9, per: global, extend: 1}\n"
CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)


def load(folder: Path, extra: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + extra)
    store = SqliteStore(folder / "state" / "store.db", caps=CAPS, timeout=0.05)
    return Guard.load(file, store=store)


@contextmanager
def full_disk(session: str = "", kind: str = "", max_failures: int = 99) -> Iterator[None]:
    """Make writing lines fail, for all or for one session or kind of event."""
    original_append, failures = JournalFile.append, itertools.count(1)

    def append(writer: JournalFile, event: str, masked: bool, anchor: bool) -> None:
        is_meant = session in ("", writer.session) and f'"{kind}' in event
        if is_meant and next(failures) <= max_failures:
            raise JournalError(writer.path, "cannot be written: it is full", "make room")
        original_append(writer, event, masked, anchor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalFile, "append", append)
        yield


@contextmanager
def limited_size(file: Path, more: int = 50) -> Iterator[None]:
    """Make the system refuse what would make a file longer by more than some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def locked_store(folder: Path) -> Iterator[None]:
    """Lock the store from another connection."""
    other = sqlite3.connect(folder / "state" / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.close()


def event_types(guard: Guard, session: str = "s") -> list[type[Event]]:
    assert guard._journal is not None
    return [type(event) for event in guard._journal.read_events(session)]


def count_allowed(session: Session) -> int:
    """Return how many more calls are allowed."""
    return sum(session.check("x", {"more": number}).allowed for number in range(20))


@pytest.mark.parametrize(
    "action",
    [
        lambda session: session.grant("calls", by="ana"),
        lambda session: session.grant("all", 20, by="ana"),
        lambda session: session.spend(cost=0.6),
        Session.turn,
    ],
)
def test_action_that_cannot_be_written_has_no_effect(
    tmp_path: Path, action: Callable[[Session], None]
) -> None:
    guard = load(tmp_path, SHARED)
    session = guard.session("s")
    events: list[Event] = []
    guard.on(events.append)
    with full_disk():
        for _ in range(3):
            with pytest.raises(JournalError, match="make room"):
                action(session)
    assert events == []
    assert session._state.turn == 0
    assert count_allowed(session) == 3
    assert sum(count_allowed(guard.session(name)) for name in "tuv") == 6


def test_call_is_refunded_even_if_its_release_cannot_be_written(tmp_path: Path) -> None:
    session = load(tmp_path).session("s")
    decision = session.check("x")
    with full_disk(), pytest.raises(JournalError):
        session.release(decision)
    assert count_allowed(session) == 3


def test_action_that_is_written_but_not_anchored_takes_effect_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = load(tmp_path)
    session = guard.session("s")
    with locked_store(tmp_path):
        session.turn()
    assert "is written, but not anchored" in caplog.text
    assert event_types(guard) == [SessionStarted, TurnStarted]
    assert session._state.turn == 1


def test_written_admission_is_released_if_the_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.journal.journal_file._ANCHOR_INTERVAL", 0)
    with load(tmp_path) as guard:
        session = guard.session("s")
        with locked_store(tmp_path):
            decision = session.check("y")
        assert not decision.allowed
        assert "locked" in decision.errors[0].error
        assert event_types(guard) == [SessionStarted, Admitted, Released]
    assert count_allowed(load(tmp_path).session("s")) == 3


def test_call_is_released_if_the_parents_journal_cannot_be_written(tmp_path: Path) -> None:
    with load(tmp_path) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        with full_disk("parent"):
            assert not child.check("y").allowed
        assert event_types(guard, "child") == [SessionStarted, Admitted, Released]
    assert count_allowed(load(tmp_path).session("child")) == 3


def test_released_call_is_refunded_in_the_journals_of_all_ancestors(tmp_path: Path) -> None:
    event_names: list[str] = []
    with load(tmp_path) as guard:
        guard.on(lambda event: event_names.append(type(event).__name__), Admitted, Released)
        top = guard.session("top")
        child = guard.session("child", parent=guard.session("parent", parent=top))
        with full_disk("top"):  # the parent's journal is written by then
            assert not child.check("y").allowed
        assert event_names == ["Admitted", "Released"]
    guard = load(tmp_path)
    assert count_allowed(guard.session("child")) == 3


def test_repeated_approval_extends_the_budget_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    budget = "budgets: {b: {calls: 1, per: session, effect: ask, extend: 1}}"
    file.write_text(f"policyguard: 1\nname: approvals\n{budget}\n")
    session = Guard.load(file, store=tmp_path / "state" / "store.db").session("s")
    assert session.check("x", {"n": 1}).allowed
    decision = session.check("x", {"n": 2})
    for _ in range(3):
        with full_disk(kind="approved"), pytest.raises(JournalError):
            session.approve(decision, by="ann")
    assert session.approve(decision, by="ann")
    assert [session.check("x", {"n": number}).allowed for number in (2, 3, 4)] == [
        True,
        False,
        False,
    ]


@pytest.mark.slow
def test_an_agent_is_not_stopped_for_insisting_while_the_store_is_locked(tmp_path: Path) -> None:
    """That a call could not be checked is no doing of the agent's."""
    file = tmp_path / "policy.yaml"
    budget = "budgets: {b: {calls: 100, per: global}}"
    limits = "limits: {default: {refusals: {max: 2, effect: halt}}}"
    rules = "rules: {no-rm: {tools: [rm], effect: block, message: Not this.}}"
    file.write_text(f"policyguard: 1\nname: locked\n{budget}\n{limits}\n{rules}\n")
    store = tmp_path / "state" / "store.db"
    guard = Guard.load(file, store=store)
    session = guard.session("s")
    with locked_store(tmp_path):
        refused = [session.check("x", {"n": number}) for number in range(8)]
    assert {decision.violations[0].id for decision in refused} == {"internal"}
    assert session.check("rm").effect is Effect.BLOCK
    guard.close()
    again = Guard.load(file, store=store).session("s")
    assert again.check("rm").effect is Effect.BLOCK
    assert again.check("rm").effect is Effect.HALT


def test_grant_lifts_the_halt_even_if_the_store_is_locked(tmp_path: Path) -> None:
    """The grant is in the journal, so the session is the same after a restart."""
    file = tmp_path / "policy.yaml"
    budget = "budgets: {b: {calls: 1, per: global, effect: halt, extend: 1}}"
    file.write_text(f"policyguard: 1\nname: halts\n{budget}\n")
    store = SqliteStore(tmp_path / "state" / "store.db", caps=CAPS, timeout=0.05)
    session = Guard.load(file, store=store).session("s")
    assert [session.check("x", {"n": number}).effect for number in (1, 2)] == ["allow", "halt"]
    with locked_store(tmp_path), pytest.raises(StoreError):
        session.grant("b", by="ann")
    (violation,) = session.preview("x").violations
    assert violation.id == "budgets/b"


def test_observe_mode_refuses_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    session = load(tmp_path, "mode: observe\n").session("s")
    with full_disk():
        decision = session.check("x")
    assert decision.allowed
    assert decision.errors


def test_spending_counts_even_if_the_parents_journal_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = load(tmp_path)
    parent = guard.session("parent")
    child = guard.session("child", parent=parent)
    with full_disk("parent"):
        child.spend(cost=1)
    assert "are missing in its parents' journals" in caplog.text
    assert not parent.preview("x").allowed


def test_event_that_needs_no_anchor_is_written_while_the_store_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.journal.journal_file._ANCHOR_INTERVAL", 3600 * 10**9)
    with load(tmp_path) as guard:
        guard.on(lambda event: None)
        child = guard.session("child", parent=guard.session("parent"))
        with locked_store(tmp_path):
            decision = child.check("y")
        assert (decision.allowed, decision.errors) == (True, ())


def test_only_what_an_ancestor_was_charged_is_taken_back(tmp_path: Path) -> None:
    """The disk is full for one event, and takes the next one."""
    with load(tmp_path) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        assert child.check("x").allowed
        with full_disk("parent", max_failures=1):
            assert not child.check("y").allowed
        assert event_types(guard, "parent") == [SessionStarted, ChildCharged]
        assert event_types(guard, "child") == [SessionStarted, Admitted, Admitted, Released]
    assert count_allowed(load(tmp_path).session("parent")) == 2


@pytest.mark.parametrize("has_budgets", [True, False])
def test_call_whose_clearing_the_parents_journal_does_not_take_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_budgets: bool
) -> None:
    if not has_budgets:
        monkeypatch.setattr(f"{__name__}.POLICY", POLICY.partition("budgets:")[0])
    marks = "marks: {read: {set: {tools: [read]}, clear: {tools: [edit]}}}\n"
    with load(tmp_path, marks) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        child.record(child.check("read"), result="text")
        with full_disk("parent", kind="marked"):
            assert not child.check("edit").allowed
        assert event_types(guard, "child")[-2:] == [Admitted, Released]
    assert count_allowed(load(tmp_path, marks).session("parent")) == (2 if has_budgets else 20)


@pytest.mark.parametrize("is_locked", [True, False])
def test_approved_call_does_not_run_on_an_error_that_lets_others_run(
    tmp_path: Path, is_locked: bool
) -> None:
    pay = "rules: {pay: {tools: [pay], effect: ask, message: m}}\n"
    session = load(tmp_path, f"{SHARED}on_internal_error: allow\n{pay}").session("s")
    assert session.approve(session.check("pay"), by="ann")
    with locked_store(tmp_path) if is_locked else full_disk():
        assert not session.check("pay").allowed
        decision = session.check("x")
    assert decision.allowed
    assert decision.errors


@pytest.mark.parametrize("is_reopened", [False, True])
def test_approval_is_kept_if_the_call_cannot_be_written(tmp_path: Path, is_reopened: bool) -> None:
    """The agent may try again once there is room: the approval holds for one call that runs."""
    rule = "{tools: [pay], effect: ask, message: m, approval: {from: [lead], count: 2}}"
    guard = load(tmp_path, f"rules: {{pay: {rule}}}\n")
    session = guard.session("s")
    decision = session.check("pay")
    approved = [session.approve(decision, by=name, labels=["lead"]) for name in ("ann", "ben")]
    assert approved == [False, True]
    assert guard._journal is not None
    with limited_size(guard._journal.path_of("s")):
        for _ in range(2):
            decision = session.check("pay")
            assert not decision.allowed
            assert "File too large" in decision.errors[0].error
    if is_reopened:
        guard.close()
        session = load(tmp_path, f"rules: {{pay: {rule}}}\n").session("s")
    decisions = [session.check("pay") for _ in range(2)]
    assert [(one.allowed, one.effect) for one in decisions] == [(True, "allow"), (False, "ask")]


def test_question_that_nobody_answered_stays_expired_if_the_call_cannot_be_written(
    tmp_path: Path,
) -> None:
    file, now = tmp_path / "policy.yaml", 0
    approval = "approval: {within: 1m, otherwise: allow}"
    rules = f"rules: {{pay: {{tools: [pay], effect: ask, message: m, {approval}}}}}"
    file.write_text(f"policyguard: 1\nname: unanswered\n{rules}\n")
    guard = Guard.load(file, store=tmp_path / "state" / "store.db", clock=lambda: now)
    guard.expect_answers()
    session = guard.session("s")
    assert session.check("pay").effect is Effect.ASK
    now = 61 * 10**9
    assert guard._journal is not None
    with limited_size(guard._journal.path_of("s")):
        assert not session.check("pay").allowed
    assert session.check("pay").allowed
    assert session.check("pay").effect is Effect.ASK


def test_approval_is_used_up_by_a_call_that_is_written_and_taken_back(tmp_path: Path) -> None:
    """Its journal says that the call was admitted, so a reopened session would ask, too."""
    pay = "rules: {pay: {tools: [pay], effect: ask, message: m}}\n"
    with load(tmp_path, pay) as guard:
        child = guard.session("child", parent=guard.session("parent"))
        assert child.approve(child.check("pay"), by="ann")
        with full_disk("parent"):
            assert not child.check("pay").allowed
        assert child.preview("pay").effect is Effect.ASK
    assert load(tmp_path, pay).session("child").check("pay").effect is Effect.ASK
