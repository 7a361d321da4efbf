"""What is left of a task's time is all that a call has."""

from __future__ import annotations

import threading

import pytest

from policyguard import CallRefused, ToolTimeoutError
from policyguard.model.event import Completed
from tests.guard.running.time_limits import (
    Open,
    Told,
    stuck,
)


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_a_call_has_what_is_left_of_the_tasks_time(
    opened: Open, told: Told, gate: threading.Event, tool: str
) -> None:
    clock = [10**18]
    session = opened("budgets: {task: {time: 1h}}\n", clock=lambda: clock[0])
    assert session.run(tool, {}, lambda: "in time") == "in time"
    clock[0] += 3600 * 10**9 - 50 * 10**6
    with pytest.raises(ToolTimeoutError, match=r"after 0\.05 s \(budgets/task\)$"):
        session.run(tool, {}, stuck(gate))
    assert [one.timeout_by for one in told.of(Completed)] == ["", "budgets/task"]
    clock[0] += 50 * 10**6
    with pytest.raises(CallRefused) as error:
        session.run(tool, {}, lambda: pytest.fail("must not run"))
    assert error.value.decision.violations[0].id == "budgets/task"


def test_the_shorter_time_holds(opened: Open, told: Told, gate: threading.Event) -> None:
    session = opened("budgets: {task: {time: 1h}}\n")
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, stuck(gate))
    assert session.run("quick", {}, lambda: 1) == 1
    assert [one.timeout_by for one in told.of(Completed)] == ["limits/tools:slow/timeout", ""]


def test_when_time_runs_low_the_result_says_so(opened: Open) -> None:
    clock = [10**18]
    more = "budgets: {task: {time: 1h, advise_at: 30m, message: 'finish soon, {left} s left'}}\n"
    session = opened(more, clock=lambda: clock[0])
    assert session.run("quick", {}, lambda: "text") == "text"
    clock[0] += 1800 * 10**9
    assert "finish soon, 1800 s left" in session.run("quick", {}, lambda: "text")
    assert session.preview("quick").timeout == 1800
    clock[0] += 1800 * 10**9
    with pytest.raises(CallRefused, match="finish soon"):
        session.run("quick", {}, lambda: pytest.fail("must not run"))
