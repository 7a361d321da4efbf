"""`close` releases a session, `end` ends its run; call ids stay unique."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, SessionBusyError
from policyguard.model.event import Admitted, Completed, Event, SessionEnded, SessionStarted

POLICY = """
policyguard: 1
name: lifetime
budgets:
  three: {calls: 3}
"""


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Guard:
    return load(tmp_path, durable=request.param)


def load(folder: Path, *, durable: bool = True, extra: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + extra)
    return Guard.load(file, store=folder / "state" / "store.db" if durable else None)


def test_leaving_the_block_closes_the_session(guard: Guard) -> None:
    events: list[Event] = []
    guard.on(events.append)
    with guard.session("s") as session:
        session.record(session.check("x"), result="fine")
    assert session.closed
    refused = session.check("x")
    assert refused.violations[0].id == "session/closed"
    assert "guard.session" in refused.errors[0].error
    assert [type(event) for event in events] == [SessionStarted, Admitted, Completed]


def test_closed_session_is_resumed_with_its_counts(guard: Guard) -> None:
    for allowed in (True, True, True, False):
        with guard.session("s") as session:
            assert session.check("x").allowed is allowed


def test_call_in_flight_can_be_recorded_after_resuming(guard: Guard) -> None:
    with guard.session("s") as session:
        decision = session.check("x")
    recorded = session.record(decision, result="while it is closed")
    assert not recorded.counted
    assert recorded.errors[0].id == "session/closed"
    assert guard.session("s").record(decision, result="now").counted


def test_another_process_can_resume_a_closed_session(tmp_path: Path) -> None:
    first, second = load(tmp_path), load(tmp_path)
    with first.session("s") as session:
        session.check("x")
        with pytest.raises(SessionBusyError):
            second.session("s")
    with second.session("s") as other:
        assert [other.check("x").allowed for _ in range(3)] == [True, True, False]
        with pytest.raises(SessionBusyError):
            session.__enter__()
    with session:
        assert not session.check("x").allowed


@pytest.mark.parametrize("name", ["a\x1eb", "a\x1fb"], ids=ascii)
@pytest.mark.parametrize("per", ["session", "turn"])
def test_end_frees_the_budgets_of_a_session_with_an_unusual_name(
    tmp_path: Path, name: str, per: str
) -> None:
    guard = load(tmp_path, durable=False, extra=f"  few: {{calls: 1, per: {per}}}\n")
    for _ in range(2):
        session = guard.session(name)
        assert [session.check("x").allowed for _ in range(2)] == [True, False]
        session.end()


def test_blocks_of_one_session_can_be_nested(guard: Guard) -> None:
    with guard.session("s") as session:
        with guard.session("s") as reopened:
            assert reopened is session
        assert not session.closed
        assert session.check("x").allowed
    assert session.closed


def test_block_can_be_entered_again(guard: Guard) -> None:
    session = guard.session("s")
    for allowed in (True, True, True, False):
        with session:
            assert session.check("x").allowed is allowed
    assert session.closed


def test_closing_twice_is_not_an_error(guard: Guard) -> None:
    session = guard.session("s")
    session.close()
    session.close()
    assert session.closed


def test_sub_agents_are_closed_with_their_parent(guard: Guard) -> None:
    with guard.session("parent") as parent:
        child = guard.session("child", parent=parent)
        assert child.check("x").allowed
    assert child.closed
    reopened = guard.session("child", parent="parent")
    assert guard.session("parent")._state.cel_session["children"] == 1
    assert [reopened.check("x").allowed for _ in range(3)] == [True, True, False]


def test_ending_a_session_resets_its_counts(guard: Guard) -> None:
    events: list[Event] = []
    guard.on(events.append, SessionEnded)
    with guard.session("s") as session:
        assert [session.check("x").allowed for _ in range(4)] == [True, True, True, False]
        session.end()
        session.end()
        assert "the session is over" in session.check("x").message
    assert len(events) == 1
    with guard.session("s") as session:
        assert session.check("x").allowed


def test_closed_session_can_be_ended(guard: Guard) -> None:
    events: list[Event] = []
    guard.on(events.append, SessionEnded)
    with guard.session("s") as session:
        session.check("x")
    session.end()
    assert len(events) == 1
    with pytest.raises(RuntimeError, match="the session is over"):
        session.__enter__()


@pytest.mark.parametrize("durable", [True, False])
def test_a_closed_session_that_ends_frees_its_slots(tmp_path: Path, durable: bool) -> None:
    guard = load(tmp_path, durable=durable, extra="  one: {concurrent: 1, per: project}\n")
    session = guard.session("s", project="p")
    assert session.check("x").allowed
    assert not guard.session("t", project="p").check("x").allowed
    session.close()
    session.end()
    assert guard.session("t", project="p").check("x").allowed


def test_turn_on_a_closed_session_is_an_error(guard: Guard) -> None:
    session = guard.session("s")
    session.close()
    with pytest.raises(RuntimeError, match="the session is closed: open it again"):
        session.turn()


def test_session_of_a_closed_guard_cannot_be_ended(guard: Guard) -> None:
    session = guard.session("s")
    guard.close()
    session.close()
    for action in (session.end, session.__enter__):
        with pytest.raises(RuntimeError, match="the guard is closed"):
            action()


def test_closed_sessions_are_capped(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=False, extra="bounds: {sessions: 3}\n")
    for number in range(10):
        with guard.session(f"s{number}") as session:
            session.check("x")
    assert len(guard._state.evaluator_state.sessions) <= 3


def test_slots_are_freed_when_the_session_closes(tmp_path: Path) -> None:
    extra = "  one: {at_once: 1, per: project}\n"
    first, second = load(tmp_path, extra=extra), load(tmp_path, extra=extra)
    with first.session("s", project="p") as session:
        assert session.check("x").allowed
        assert not second.session("t", project="p").check("x").allowed
    assert second.session("t", project="p").check("x").allowed
