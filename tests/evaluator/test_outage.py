"""`outage` beyond what the stories tell: untimed calls, invented tools, results that come late."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, Session
from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplaySession
from policyguard.guard.session_opening import start_session
from policyguard.model.event import Admitted, Completed, Event, Started

POLICY = """
policyguard: 1
name: outage
bounds: {window_entries: 8}
limits:
  default: {outage: {max: 2, within: 60s, cooldown: 10s}}
"""
SECOND = 10**9
NOW = 1_772_800_000 * SECOND


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard(compile_policy(file), clock=lambda: NOW)


def fail(session: Session, tool: str, at: int, *, server: str = "", blame: str = "harness") -> None:
    session.record(session.check(tool, at=at, server=server), error="x", blame=blame, at=at)


def allowed(session: Session, tool: str, at: int, server: str = "") -> bool:
    return session.preview(tool, at=at, server=server).allowed


def test_without_times_there_is_no_outage(guard: Guard) -> None:
    session = start_session(guard, Started("s"))
    for number in range(9):
        call = f"c{number}"
        decision = ReplaySession(session).apply(Admitted("s", call=call, tool="get", args={}))
        assert decision is not None
        assert decision.allowed
        ReplaySession(session).apply(Completed("s", call=call, ok=False, text="x", blame="harness"))


def test_a_call_without_a_time_is_not_refused_by_an_outage(guard: Guard) -> None:
    session = guard.session("s")
    fail(session, "get", NOW)
    fail(session, "get", NOW)
    assert not allowed(session, "get", NOW)
    decision = ReplaySession(session).apply(Admitted("s", call="x", tool="get", args={}))
    assert decision is not None
    assert decision.allowed


def test_invented_tools_are_forgotten(guard: Guard) -> None:
    session = guard.session("s")
    for number in range(1000):
        fail(session, f"tool{number}", NOW)
    tracker = session._state.trackers["limits/default/outage"]
    assert len(tracker) == 8
    fail(session, "tool999", NOW)
    assert not allowed(session, "tool999", NOW)


def test_tools_that_work_leave_nothing_behind(guard: Guard) -> None:
    session = guard.session("s")
    for number in range(20):
        fail(session, f"tool{number % 4}", NOW)
        session.record(session.check(f"tool{number % 4}"), result="fine")
        session.record(session.check(f"other{number}"), result="fine")
    assert session._state.trackers["limits/default/outage"] == {}


def test_a_tool_of_another_server_is_another_tool(guard: Guard) -> None:
    session = guard.session("s")
    fail(session, "get", NOW, server="a")
    fail(session, "get", NOW, server="a")
    assert not allowed(session, "get", NOW, "a")
    assert allowed(session, "get", NOW, "b")
    assert allowed(session, "get", NOW)


def test_what_began_before_the_rest_neither_ends_nor_lengthens_it(guard: Guard) -> None:
    session = guard.session("s")
    early = [session.check("get", at=NOW) for _ in range(4)]
    for decision in early[:2]:
        session.record(decision, error="x", blame="harness", at=NOW)
    session.record(early[2], result="fine", at=NOW + SECOND)
    assert not allowed(session, "get", NOW + 2 * SECOND)
    session.record(early[3], error="x", blame="harness", at=NOW + 9 * SECOND)
    assert allowed(session, "get", NOW + 10 * SECOND)


def test_a_trial_that_was_given_up_says_nothing_when_it_comes_back(guard: Guard) -> None:
    session = guard.session("s")
    fail(session, "get", NOW)
    fail(session, "get", NOW)
    later = NOW + 10 * SECOND
    lost = session.check("get", at=later)
    assert not allowed(session, "get", later)
    later += 3600 * SECOND  # bounds.unreported
    trial = session.check("get", at=later)
    assert trial.allowed
    assert not allowed(session, "get", later)
    session.record(lost, result="fine", at=later)
    assert not allowed(session, "get", later)
    session.record(trial, result="fine", at=later)
    assert allowed(session, "get", later)


def test_the_rest_after_a_trial_counts_from_its_result(guard: Guard) -> None:
    session = guard.session("s")
    fail(session, "get", NOW)
    fail(session, "get", NOW)
    trial = session.check("get", at=NOW + 10 * SECOND)
    waiting = session.preview("get", at=NOW + 10 * SECOND)
    assert "one call is testing" in waiting.message
    assert waiting.structured["retry_after"] is None
    session.record(trial, error="x", blame="harness", at=NOW + 15 * SECOND)
    assert not allowed(session, "get", NOW + 24 * SECOND)
    assert allowed(session, "get", NOW + 25 * SECOND)


def test_only_the_trial_itself_gives_its_place_back(guard: Guard) -> None:
    session = guard.session("s")
    fail(session, "get", NOW)
    early = session.check("get", at=NOW)
    fail(session, "get", NOW)
    later = NOW + 10 * SECOND
    lost = session.check("get", at=later)
    later += 3599 * SECOND
    session.check("other", at=later)
    later += SECOND  # `lost` is given up, and still in flight
    trial = session.check("get", at=later)
    session.release(lost)
    session.release(early)
    assert not allowed(session, "get", later)
    session.record(trial, result="fine", at=later)
    session.release(session.check("get", at=later))  # there is no trial and no row any more
    assert allowed(session, "get", later)


def test_replayed_in_observe_mode_the_limit_says_what_it_would_do(
    guard: Guard, tmp_path: Path
) -> None:
    events: list[Event] = []
    observing = Guard(
        compile_policy(tmp_path / "policy.yaml"),
        clock=lambda: NOW,
        listener=events.append,
        observe=True,
    )
    session = observing.session("s")
    fail(session, "get", NOW)
    fail(session, "get", NOW)
    decision = session.check("get", at=NOW)
    assert decision.allowed
    assert [one.id for one in decision.would] == ["limits/default/outage"]
    session.record(decision, error="x", blame="harness", at=NOW)
    assert [one.id for one in session.preview("get", at=NOW + 10 * SECOND).would] == []
