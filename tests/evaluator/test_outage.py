"""`outage` beyond the stories: calls without times, many tools, late results."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, Session
from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplaySession
from policyguard.guard.sessions.opening import start_session
from policyguard.model.event import Admitted, Completed, Event, SessionStarted

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


def record_failure(
    session: Session, tool: str, at: int, *, server: str = "", blame: str = "harness"
) -> None:
    session.record(session.check(tool, at=at, server=server), error="x", blame=blame, at=at)


def is_allowed(session: Session, tool: str, at: int, server: str = "") -> bool:
    return session.preview(tool, at=at, server=server).allowed


def test_calls_without_times_never_open_the_breaker(guard: Guard) -> None:
    session = start_session(guard, SessionStarted("s"))
    for number in range(9):
        call = f"c{number}"
        decision = ReplaySession(session).apply(Admitted("s", call=call, tool="get", args={}))
        assert decision is not None
        assert decision.allowed
        ReplaySession(session).apply(Completed("s", call=call, ok=False, text="x", blame="harness"))


def test_call_without_a_time_is_not_refused(guard: Guard) -> None:
    session = guard.session("s")
    record_failure(session, "get", NOW)
    record_failure(session, "get", NOW)
    assert not is_allowed(session, "get", NOW)
    decision = ReplaySession(session).apply(Admitted("s", call="x", tool="get", args={}))
    assert decision is not None
    assert decision.allowed


def test_tracked_tools_are_capped(guard: Guard) -> None:
    session = guard.session("s")
    for number in range(1000):
        record_failure(session, f"tool{number}", NOW)
    tracker = session._state.trackers["limits/default/outage"]
    assert len(tracker) == 8
    record_failure(session, "tool999", NOW)
    assert not is_allowed(session, "tool999", NOW)


def test_successful_tools_leave_no_state(guard: Guard) -> None:
    session = guard.session("s")
    for number in range(20):
        record_failure(session, f"tool{number % 4}", NOW)
        session.record(session.check(f"tool{number % 4}"), result="fine")
        session.record(session.check(f"other{number}"), result="fine")
    assert session._state.trackers["limits/default/outage"] == {}


def test_servers_are_tracked_separately(guard: Guard) -> None:
    session = guard.session("s")
    record_failure(session, "get", NOW, server="a")
    record_failure(session, "get", NOW, server="a")
    assert not is_allowed(session, "get", NOW, "a")
    assert is_allowed(session, "get", NOW, "b")
    assert is_allowed(session, "get", NOW)


def test_calls_started_before_the_cooldown_do_not_change_it(guard: Guard) -> None:
    session = guard.session("s")
    early_calls = [session.check("get", at=NOW) for _ in range(4)]
    for decision in early_calls[:2]:
        session.record(decision, error="x", blame="harness", at=NOW)
    session.record(early_calls[2], result="fine", at=NOW + SECOND)
    assert not is_allowed(session, "get", NOW + 2 * SECOND)
    session.record(early_calls[3], error="x", blame="harness", at=NOW + 9 * SECOND)
    assert is_allowed(session, "get", NOW + 10 * SECOND)


def test_late_result_of_an_abandoned_probe_is_ignored(guard: Guard) -> None:
    session = guard.session("s")
    record_failure(session, "get", NOW)
    record_failure(session, "get", NOW)
    later = NOW + 10 * SECOND
    abandoned = session.check("get", at=later)
    assert not is_allowed(session, "get", later)
    later += 3600 * SECOND  # bounds.unreported
    probe = session.check("get", at=later)
    assert probe.allowed
    assert not is_allowed(session, "get", later)
    session.record(abandoned, result="fine", at=later)
    assert not is_allowed(session, "get", later)
    session.record(probe, result="fine", at=later)
    assert is_allowed(session, "get", later)


def test_cooldown_restarts_at_the_result_of_a_failed_probe(guard: Guard) -> None:
    session = guard.session("s")
    record_failure(session, "get", NOW)
    record_failure(session, "get", NOW)
    probe = session.check("get", at=NOW + 10 * SECOND)
    refused = session.preview("get", at=NOW + 10 * SECOND)
    assert "one call is testing" in refused.message
    assert refused.structured["retry_after"] is None
    session.record(probe, error="x", blame="harness", at=NOW + 15 * SECOND)
    assert not is_allowed(session, "get", NOW + 24 * SECOND)
    assert is_allowed(session, "get", NOW + 25 * SECOND)


def test_only_the_current_probe_frees_the_breaker(guard: Guard) -> None:
    session = guard.session("s")
    record_failure(session, "get", NOW)
    early_call = session.check("get", at=NOW)
    record_failure(session, "get", NOW)
    later = NOW + 10 * SECOND
    abandoned = session.check("get", at=later)
    later += 3599 * SECOND
    session.check("other", at=later)
    later += SECOND  # the first probe is abandoned, but still in flight
    probe = session.check("get", at=later)
    session.release(abandoned)
    session.release(early_call)
    assert not is_allowed(session, "get", later)
    session.record(probe, result="fine", at=later)
    session.release(session.check("get", at=later))  # no probe and no streak remain
    assert is_allowed(session, "get", later)


def test_observe_mode_reports_the_refusal_it_would_make(guard: Guard, tmp_path: Path) -> None:
    events: list[Event] = []
    observe_guard = Guard(
        compile_policy(tmp_path / "policy.yaml"),
        clock=lambda: NOW,
        listener=events.append,
        observe=True,
    )
    session = observe_guard.session("s")
    record_failure(session, "get", NOW)
    record_failure(session, "get", NOW)
    decision = session.check("get", at=NOW)
    assert decision.allowed
    assert [one.id for one in decision.would] == ["limits/default/outage"]
    session.record(decision, error="x", blame="harness", at=NOW)
    assert [one.id for one in session.preview("get", at=NOW + 10 * SECOND).would] == []
