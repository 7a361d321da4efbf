"""Plain functions under time limits."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from policyguard import Session, ToolTimeoutError
from policyguard.model.event import CallEnded, Completed, Released
from tests.guard.running.time_limits import (
    POLICY,
    TIMEOUT,
    EventLog,
    OpenSession,
    count_workers,
    make_stuck_tool,
    wait_for_workers,
)

current_user: ContextVar[str] = ContextVar("current_user", default="none")


def test_tool_without_a_timeout_runs_in_the_callers_thread(session: Session) -> None:
    assert session.run("other", {}, threading.get_ident) == threading.get_ident()


def test_tool_with_a_timeout_runs_in_a_thread_with_the_callers_context(session: Session) -> None:
    current_user.set("me")
    assert session.run("quick", {}, threading.get_ident) != threading.get_ident()
    assert session.run("quick", {}, current_user.get) == "me"
    session.run("quick", {}, lambda: current_user.set("you"))
    assert current_user.get() == "me"


def test_timed_out_call_fails_and_the_caller_continues(
    session: Session, log: EventLog, gate: threading.Event
) -> None:
    with pytest.raises(ToolTimeoutError) as error:
        session.run("slow", {}, make_stuck_tool(gate))
    assert isinstance(error.value, TimeoutError)
    assert str(error.value) == "timed out after 0.05 s (limits/tools:slow/timeout)"
    assert error.value.decision.timeout_by == "limits/tools:slow/timeout"
    (failed,) = log.of_type(Completed)
    assert (failed.ok, failed.error) == (False, str(error.value))
    assert (failed.timeout_by, failed.still_running) == ("limits/tools:slow/timeout", True)
    assert failed.blame == "harness"
    assert failed.duration is not None
    assert failed.duration >= 0.05
    assert log.of_type(CallEnded) == []


@pytest.mark.parametrize(
    ("result", "end"),
    [
        ("late", (True, "late", None)),
        ({"a": 1}, (True, '{"a":1}', None)),
        ({"content": [], "isError": True}, (False, "", None)),
        ({"task": {"status": "working"}, "content": []}, (None, "", None)),
        (ValueError("at last"), (False, "", "ValueError: at last")),
        (SystemExit(), (False, "", "SystemExit")),
    ],
)
def test_end_of_a_timed_out_call_is_an_event_and_changes_no_count(
    open_session: OpenSession,
    log: EventLog,
    gate: threading.Event,
    result: object,
    end: tuple[bool | None, str, str | None],
) -> None:
    session = open_session("budgets: {calls: {calls: 9}}\n")
    for _ in range(2):
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, make_stuck_tool(gate, result))
    variables = dict(session._state.cel_session)
    gate.set()
    ended_events = log.wait(CallEnded, 2)
    assert {(event.ok, event.text, event.error) for event in ended_events} == {end}
    assert {event.call for event in ended_events} == {"c1", "c2"}
    assert len(log.of_type(Completed)) == 2
    assert all(event.duration is not None and event.duration >= 0.05 for event in ended_events)
    session.preview("slow")  # updates the variables of expressions
    assert session._state.cel_session == {**variables, "running": 0}
    (violation,) = session.preview("slow").violations
    assert (violation.id, violation.used) == ("limits/default/failures", 2)


SIGNATURE = "signatures: [{id: slow, pattern: timed out%s}]\n"


@pytest.mark.parametrize(
    ("extra", "blame"),
    [
        ("", "harness"),
        (SIGNATURE % "", "harness"),
        (SIGNATURE % ", blame: agent", "agent"),
        ("blame: [{id: mine, when: 'outcome.error.contains(\"timed out\")', blame: unknown}]\n",
         "unknown"),
        ("blame: [{id: other, when: 'outcome.blame != \"harness\"', blame: agent}]\n", "harness"),
        ("extends: [core]\n", "harness"),
        ("extends: [ml-training]\n", "agent"),
    ],
)  # fmt: skip
def test_timeout_is_blamed_on_the_harness_unless_the_policy_differs(
    open_session: OpenSession, log: EventLog, gate: threading.Event, extra: str, blame: str
) -> None:
    with pytest.raises(ToolTimeoutError):
        open_session(extra).run("slow", {}, make_stuck_tool(gate))
    assert [event.blame for event in log.of_type(Completed)] == [blame]


def test_exceptions_of_a_tool_are_its_own(session: Session, log: EventLog) -> None:
    def fail() -> None:
        raise TimeoutError("the server did not answer")

    with pytest.raises(TimeoutError, match="did not answer") as error:
        session.run("quick", {}, fail)
    assert type(error.value) is TimeoutError
    (failed,) = log.of_type(Completed)
    assert failed.error == "TimeoutError: the server did not answer"
    assert (failed.timeout_by, failed.blame, failed.still_running) == ("", "unknown", False)


def test_timeout_of_a_nested_call_is_an_error_of_the_outer_call(
    session: Session, log: EventLog, gate: threading.Event
) -> None:
    def outer() -> Any:
        return session.run("slow", {}, make_stuck_tool(gate))

    with pytest.raises(ToolTimeoutError) as error:
        session.run("quick", {}, outer)
    assert error.value.decision.tool == "slow"
    inner, failed = log.of_type(Completed)
    assert (inner.timeout_by, failed.timeout_by) == ("limits/tools:slow/timeout", "")
    assert failed.error == f"ToolTimeoutError: {inner.error}"


class Interruption(BaseException):
    """What the signal handler raises."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Return a function that interrupts the main thread."""

    def handler(*_: object) -> None:
        raise Interruption

    previous = signal.signal(signal.SIGUSR1, handler)
    main = threading.get_ident()
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)


def test_interrupted_call_is_recorded_when_it_ends(
    session: Session, log: EventLog, gate: threading.Event, interrupt: Callable[[], None]
) -> None:
    def fn() -> str:
        interrupt()
        return str(make_stuck_tool(gate, "done")())

    with pytest.raises(Interruption):
        session.run("quick", {}, fn)
    assert log.of_type(Completed) == []
    gate.set()
    (done,) = log.wait(Completed)
    assert (done.ok, done.text, done.timeout_by) == (True, "done", "")
    assert log.of_type(CallEnded) == []


def test_call_is_released_if_no_thread_can_start(
    session: Session, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            session.run("quick", {}, lambda: 1)
    assert len(log.of_type(Released)) == 1


def test_concurrent_calls_leave_no_finished_threads(
    open_session: OpenSession, log: EventLog, gate: threading.Event
) -> None:
    session = open_session(failures=32)  # threads start when they start: no streak stops them
    count, previous = 32, count_workers()

    def call(number: int) -> bool:
        try:
            session.run(
                "slow" if number % 2 else "quick",
                {"n": number},
                make_stuck_tool(gate) if number % 2 else int,
            )
        except ToolTimeoutError:
            return False
        return True

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(call, range(count))).count(False) == count // 2
    assert wait_for_workers(previous + count // 2)
    gate.set()
    log.wait(CallEnded, count // 2)
    assert wait_for_workers(previous)


STUCK_SCRIPT = """
import asyncio, threading
from policyguard import Guard, ToolTimeoutError

session = Guard.load({policy!r}).session("a")
try:
    session.run("slow", {{}}, threading.Event().wait)
except ToolTimeoutError as error:
    print(error)

async def main():
    async def fn():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)
    try:
        await session.arun("slow", {{}}, fn)
    except ToolTimeoutError as error:
        print(error)

asyncio.run(main())
"""


def test_stuck_tools_do_not_delay_process_exit(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(cleanup="50ms", failures=2))
    done = subprocess.run(
        [sys.executable, "-c", STUCK_SCRIPT.format(policy=str(policy))],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert done.stdout.splitlines() == ["timed out after 0.05 s (limits/tools:slow/timeout)"] * 2
    assert done.stderr == ""


def test_sync_call_inside_an_event_loop_times_out(session: Session, log: EventLog) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()

        def wait_for_loop() -> str:  # the loop waits for this call
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "free"), loop).result()

        assert session.run("quick", {}, lambda: "fine") == "fine"
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, wait_for_loop)
        (end,) = await asyncio.to_thread(log.wait, CallEnded)
        return end.text

    assert asyncio.run(main()) == "free"


def test_only_a_call_that_may_run_has_a_time_limit(session: Session) -> None:
    assert session.preview("slow").timeout == 0.05
    for _ in range(20):
        decision = session.check("slow")
        if not decision.allowed:
            break
        session.record(decision, error="wrong")
    assert not decision.allowed
    assert (decision.timeout, decision.timeout_by) == (None, "")
