"""A time budget limits how long a call may run."""

from __future__ import annotations

import threading

import pytest

from policyguard import CallRefused, ToolTimeoutError
from policyguard.model.event import Completed
from tests.guard.running.time_limits import (
    EventLog,
    OpenSession,
    make_stuck_tool,
)


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_call_gets_the_time_left_in_the_budget(
    open_session: OpenSession, log: EventLog, gate: threading.Event, tool: str
) -> None:
    clock = [10**18]
    session = open_session("budgets: {task: {time: 1h}}\n", clock=lambda: clock[0])
    assert session.run(tool, {}, lambda: "in time") == "in time"
    clock[0] += 3600 * 10**9 - 50 * 10**6
    with pytest.raises(ToolTimeoutError, match=r"after 0\.05 s \(budgets/task\)$"):
        session.run(tool, {}, make_stuck_tool(gate))
    assert [event.timeout_by for event in log.of_type(Completed)] == ["", "budgets/task"]
    clock[0] += 50 * 10**6
    with pytest.raises(CallRefused) as error:
        session.run(tool, {}, lambda: pytest.fail("must not run"))
    assert error.value.decision.violations[0].id == "budgets/task"


def test_shorter_time_limit_applies(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    session = open_session("budgets: {task: {time: 1h}}\n")
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    assert session.run("quick", {}, lambda: 1) == 1
    assert [event.timeout_by for event in log.of_type(Completed)] == [
        "limits/tools:slow/timeout",
        "",
    ]


def test_result_carries_advice_when_time_runs_low(open_session: OpenSession) -> None:
    clock = [10**18]
    extra = "budgets: {task: {time: 1h, advise_at: 30m, message: 'finish soon, {left} s left'}}\n"
    session = open_session(extra, clock=lambda: clock[0])
    assert session.run("quick", {}, lambda: "text") == "text"
    clock[0] += 1800 * 10**9
    assert "finish soon, 1800 s left" in session.run("quick", {}, lambda: "text")
    assert session.preview("quick").timeout == 1800
    clock[0] += 1800 * 10**9
    with pytest.raises(CallRefused, match="finish soon"):
        session.run("quick", {}, lambda: pytest.fail("must not run"))
