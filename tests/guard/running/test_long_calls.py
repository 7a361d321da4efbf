"""Calls that run longer than `bounds.unreported`, and results that come late."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, Session

HOUR = 3600 * 10**9

POLICY = """
policyguard: 1
name: long calls
bounds: {in_flight: 4, given_up: 6}
limits: {tools: {timed: {timeout: 9h}}}
budgets:
  one: {tools: [timed, untimed], concurrent: 1}
  money: {tools: [pay], cost: 10}
  shared: {tools: [share], cost: 10, reserve: 4, per: project}
  sent: {tools: [send], calls: 1, when: "outcome.ok && has(call.args.to)"}
  deleted: {tools: [send], calls: 1, when: "outcome.ok && has(call.hints.destructive)"}
"""


class Clock:
    def __init__(self) -> None:
        self.now = 10**18

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_session(tmp_path: Path, clock: Clock) -> Callable[..., Session]:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)

    def open_session(**options: Any) -> Session:
        return Guard.load(file, clock=clock, **options).session("a", project="p")

    return open_session


@pytest.fixture
def session(open_session: Callable[..., Session]) -> Session:
    return open_session()


def run_in_background(
    session: Session, tool: str, gate: threading.Event
) -> tuple[threading.Thread, list[str]]:
    """Run a tool that waits for `gate`; return when it has begun."""
    begun, results = threading.Event(), []

    def fn() -> str:
        begun.set()
        gate.wait(30)
        return "done"

    thread = threading.Thread(target=lambda: results.append(session.run(tool, {}, fn)))
    thread.start()
    assert begun.wait(30)
    return thread, results


@pytest.mark.parametrize("tool", ["timed", "untimed"])
def test_running_call_keeps_its_slot(
    session: Session, clock: Clock, gate: threading.Event, tool: str
) -> None:
    thread, results = run_in_background(session, tool, gate)
    for _ in range(3):
        clock.now += 2 * HOUR
        assert session.check("other")
        assert not session.check(tool)
    gate.set()
    thread.join()
    assert results == ["done"]
    assert session.check(tool)


@pytest.mark.parametrize("tool", ["timed", "untimed"])
def test_running_async_call_keeps_its_slot(session: Session, clock: Clock, tool: str) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        task = asyncio.create_task(session.arun(tool, {}, gate.wait))
        await asyncio.sleep(0.01)
        clock.now += 2 * HOUR
        assert session.check("other")
        assert not session.check(tool)
        gate.set()
        await task
        assert session.check(tool)

    asyncio.run(main())


def test_running_call_is_not_among_the_too_many(session: Session, gate: threading.Event) -> None:
    thread, _ = run_in_background(session, "untimed", gate)
    for number in range(20):
        assert session.check("other", {"n": number})
    assert not session.check("untimed")
    gate.set()
    thread.join()
    assert session.check("untimed")


def test_overdue_call_behind_a_running_one_is_given_up(
    session: Session, clock: Clock, gate: threading.Event
) -> None:
    thread, _ = run_in_background(session, "other", gate)
    assert session.check("untimed")
    clock.now += 2 * HOUR
    session.check("other")
    assert session.check("untimed")
    gate.set()
    thread.join()


def test_late_result_counts_and_says_so(session: Session, clock: Clock) -> None:
    decision = session.check("pay", call="toolu_1")
    clock.now += 2 * HOUR
    session.check("other")
    recorded = session.record("toolu_1", result="paid", cost=10)
    assert recorded.counted
    assert [error.id for error in recorded.errors] == ["bounds/unreported"]
    assert not session.check("pay")
    assert not session.record(decision, result="paid", cost=10).counted


def test_forgotten_result_says_that_it_does_not_count(session: Session) -> None:
    decisions = [session.check("pay", {"n": number}) for number in range(11)]
    first, second = (session.record(one, result="paid", cost=1) for one in decisions[:2])
    assert not first.counted
    assert "`bounds.given_up`" in first.errors[0].error
    assert second.counted


def test_a_call_whose_arguments_are_forgotten_is_still_charged(session: Session) -> None:
    decisions = [session.check("pay", {"n": number}, call=f"h{number}") for number in range(10)]
    state = session.guard._state.evaluator_state.sessions["a"]
    assert [len(kept) for kept in (state.in_flight, state.given_up, state.reduced)] == [4, 4, 2]
    assert not any(attempt.args for attempt in state.reduced.values())
    assert session.record("h0", result="paid", cost=4).counted
    assert session.record(decisions[1], result="paid", cost=6).counted
    assert not session.check("pay")
    assert not state.reduced


@pytest.mark.parametrize(
    ("args", "hints", "entries"),
    [
        ({"to": "you"}, {}, ["budgets/sent", "bounds/unreported"]),
        ({}, {"destructive": True}, ["budgets/sent", "bounds/unreported"]),
    ],
)
def test_a_condition_over_forgotten_arguments_fails(
    session: Session, args: dict[str, Any], hints: dict[str, bool], entries: list[str]
) -> None:
    decisions = [session.check("send", {**args, "n": n}, hints=hints) for n in range(10)]
    recorded = session.record(decisions[0], result="sent")
    assert [error.id for error in recorded.errors] == entries
    assert "arguments of this call were not kept" in recorded.errors[0].error
    refused = session.check("send", args, hints=hints)
    expected = {"budgets/sent", "budgets/deleted"} if hints else {"budgets/sent"}
    assert {violation.id for violation in refused.violations} == expected


def test_a_condition_that_need_not_read_forgotten_arguments_holds(session: Session) -> None:
    decisions = [session.check("send", {"to": "you", "n": n}) for n in range(10)]
    recorded = session.record(decisions[0], error="no such address")
    assert [error.id for error in recorded.errors] == ["bounds/unreported"]
    assert session.check("send", {"to": "you"})


def test_call_of_a_session_that_was_closed_can_be_given_up(
    session: Session, clock: Clock, gate: threading.Event
) -> None:
    thread, _ = run_in_background(session, "untimed", gate)
    session.close()
    gate.set()
    thread.join()
    with session:
        assert not session.check("untimed")
        clock.now += 2 * HOUR
        session.check("other")
        assert session.check("untimed")


def test_reserve_of_a_shared_budget_is_counted_once(
    open_session: Callable[..., Session], clock: Clock, tmp_path: Path
) -> None:
    session = open_session(store=tmp_path / "store.db")
    late = session.check("share")
    clock.now += 2 * HOUR
    session.check("other")
    assert session.record(late, result="", cost=6).counted  # 6 of 10, and room for a reserve of 4
    assert session.record(session.check("share", {"n": 2}), result="", cost=4).counted
    assert not session.check("share", {"n": 3})
    session.guard.close()


def test_journal_restores_late_results(
    open_session: Callable[..., Session], clock: Clock, tmp_path: Path, gate: threading.Event
) -> None:
    session = open_session(store=tmp_path / "store.db")
    late = session.check("pay", {"n": 1})
    thread, _ = run_in_background(session, "timed", gate)
    clock.now += 2 * HOUR
    session.check("other")
    session.record(late, result="", cost=10)
    gate.set()
    thread.join()
    calls = session._state.cel_session["calls"]
    session.guard.close()
    restored = open_session(store=tmp_path / "store.db")
    assert not restored.check("pay", {"n": 2})
    assert restored.check("timed")
    assert restored._state.cel_session["calls"] == calls + 1
    restored.guard.close()


def test_fork_does_not_hold_the_calls_of_its_parent(
    session: Session, clock: Clock, gate: threading.Event
) -> None:
    thread, _ = run_in_background(session, "untimed", gate)
    pid = os.fork()
    if not pid:
        clock.now += 2 * HOUR
        session.check("other")
        os._exit(0 if session.check("untimed") else 1)
    assert os.waitpid(pid, 0)[1] == 0
    gate.set()
    thread.join()
