"""Slots of `concurrent` budgets held by calls that timed out."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from policyguard import ToolTimeoutError
from policyguard.model.event import CallEnded
from tests.guard.running.time_limits import TIMEOUT, EventLog, OpenSession, make_stuck_tool


def test_timed_out_call_keeps_its_slot_until_it_ends(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    extra = (
        "budgets: {one: {concurrent: 1, tools: [slow]}}\nrules: {r: {when: session.running > 1}}\n"
    )
    session = open_session(extra)
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    assert [one.id for one in session.preview("slow").violations] == ["budgets/one"]
    assert session.check("other").allowed
    assert not session.preview("other").allowed, "two are running"
    gate.set()
    log.wait(CallEnded)
    assert session.preview("slow").allowed


def test_async_call_frees_its_slot_before_the_caller_continues(open_session: OpenSession) -> None:
    session = open_session("budgets: {one: {concurrent: 1}}\n")

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ToolTimeoutError):
                await session.arun("slow", {}, lambda: asyncio.sleep(TIMEOUT))

    asyncio.run(main())


def test_timed_out_call_keeps_its_slot_as_long_as_it_runs(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    clock = [10**18]
    session = open_session(
        "budgets: {one: {concurrent: 1, tools: [slow]}}\n", clock=lambda: clock[0]
    )
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    for _ in range(3):
        clock[0] += 7200 * 10**9
        assert session.check("other").allowed
        assert not session.check("slow").allowed
    gate.set()
    log.wait(CallEnded)
    assert session.check("slow").allowed


def test_timed_out_call_keeps_a_slot_of_a_shared_budget(
    open_session: OpenSession, log: EventLog, gate: threading.Event, tmp_path: Path
) -> None:
    extra = "budgets: {two: {concurrent: 2, per: project}}\n"
    session = open_session(extra, store=tmp_path / "state.db")
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    first = session.check("other")
    assert first.allowed
    beside = session.guard.session("beside")
    assert not beside.check("other").allowed, "two are running"
    gate.set()
    log.wait(CallEnded)
    assert beside.check("other").allowed
    assert not beside.check("other", {"n": 1}).allowed
    session.record(first)
    assert beside.check("other", {"n": 1}).allowed


def test_the_end_of_a_session_frees_the_slots_of_its_calls(
    open_session: OpenSession, gate: threading.Event
) -> None:
    session = open_session("budgets: {three: {concurrent: 3, per: project}}\n")
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    for number in range(2):
        assert session.check("other", {"n": number}).allowed
    beside = session.guard.session("beside")
    assert not beside.check("other").allowed
    session.end()
    assert [beside.check("other", {"n": number}).allowed for number in range(4)] == [
        True,
        True,
        True,
        False,
    ]
    gate.set()


def test_folded_events_rebuild_the_taken_slots(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    extra = "budgets: {one: {concurrent: 1, tools: [slow]}}\n"
    session = open_session(extra)
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    rebuilt = open_session(extra)
    for event in list(log.events):
        rebuilt.guard._state.fold(event)
    assert not rebuilt.preview("slow").allowed
    rebuilt.guard._state.fold(CallEnded(session="a", call="c1"))
    assert rebuilt.preview("slow").allowed
    gate.set()
    log.wait(CallEnded)


def test_the_slot_of_a_call_that_never_ends_is_free_at_the_next_call_after_a_while(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    clock = [10**18]
    extra = "budgets: {one: {concurrent: 1, tools: [slow]}}\n"
    session = open_session(extra, clock=lambda: clock[0])
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    rebuilt = open_session(extra, clock=lambda: clock[0])  # as by a process that goes on with it
    for event in list(log.events):
        rebuilt.guard._state.fold(event)
    clock[0] += 7200 * 10**9
    assert not rebuilt.preview("slow").allowed
    assert rebuilt.check("other").allowed
    assert rebuilt.preview("slow").allowed
