"""Plain functions, in the time that they have."""

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
from policyguard.model.event import Completed, Ended, Released
from tests.guard.running.time_limits import (
    PATIENCE,
    POLICY,
    Open,
    Told,
    stuck,
    workers,
    workers_become,
)

who: ContextVar[str] = ContextVar("who", default="nobody")


def test_without_a_timeout_a_function_runs_where_it_is_called(session: Session) -> None:
    assert session.run("other", {}, threading.get_ident) == threading.get_ident()


def test_with_a_timeout_it_runs_in_a_thread_with_the_callers_context(session: Session) -> None:
    who.set("me")
    assert session.run("quick", {}, threading.get_ident) != threading.get_ident()
    assert session.run("quick", {}, who.get) == "me"
    session.run("quick", {}, lambda: who.set("you"))
    assert who.get() == "me"


def test_out_of_time_a_call_has_failed_and_its_caller_goes_on(
    session: Session, told: Told, gate: threading.Event
) -> None:
    with pytest.raises(ToolTimeoutError) as error:
        session.run("slow", {}, stuck(gate))
    assert isinstance(error.value, TimeoutError)
    assert str(error.value) == "timed out after 0.05 s (limits/tools:slow/timeout)"
    assert error.value.decision.timeout_by == "limits/tools:slow/timeout"
    (failed,) = told.of(Completed)
    assert (failed.ok, failed.error) == (False, str(error.value))
    assert (failed.timeout_by, failed.still_running) == ("limits/tools:slow/timeout", True)
    assert failed.blame == "harness"
    assert failed.duration is not None
    assert failed.duration >= 0.05
    assert told.of(Ended) == []


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
def test_how_it_ended_is_told_and_counts_nowhere(
    opened: Open,
    told: Told,
    gate: threading.Event,
    result: object,
    end: tuple[bool | None, str, str | None],
) -> None:
    session = opened("budgets: {calls: {calls: 9}}\n")
    for _ in range(2):
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, stuck(gate, result))
    facts = dict(session._state.cel_session)
    gate.set()
    ends = told.wait(Ended, 2)
    assert {(one.ok, one.text, one.error) for one in ends} == {end}
    assert {one.call for one in ends} == {"c1", "c2"}
    assert len(told.of(Completed)) == 2
    assert all(one.duration is not None and one.duration >= 0.05 for one in ends)
    session.preview("slow")  # what expressions see is brought up to date
    assert session._state.cel_session == {**facts, "running": 0}
    (row,) = session.preview("slow").violations
    assert (row.id, row.used) == ("limits/default/failures", 2)


SIGNATURE = "signatures: [{id: slow, pattern: timed out%s}]\n"


@pytest.mark.parametrize(
    ("more", "blame"),
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
def test_nobody_but_the_harness_is_to_blame_unless_the_policy_says_so(
    opened: Open, told: Told, gate: threading.Event, more: str, blame: str
) -> None:
    with pytest.raises(ToolTimeoutError):
        opened(more).run("slow", {}, stuck(gate))
    assert [one.blame for one in told.of(Completed)] == [blame]


def test_what_a_function_raises_in_time_is_its_own(session: Session, told: Told) -> None:
    def fail() -> None:
        raise TimeoutError("the server did not answer")

    with pytest.raises(TimeoutError, match="did not answer") as error:
        session.run("quick", {}, fail)
    assert type(error.value) is TimeoutError
    (failed,) = told.of(Completed)
    assert failed.error == "TimeoutError: the server did not answer"
    assert (failed.timeout_by, failed.blame, failed.still_running) == ("", "unknown", False)


def test_a_timeout_inside_a_call_is_that_calls_error(
    session: Session, told: Told, gate: threading.Event
) -> None:
    def outer() -> Any:
        return session.run("slow", {}, stuck(gate))

    with pytest.raises(ToolTimeoutError) as error:
        session.run("quick", {}, outer)
    assert error.value.decision.tool == "slow"
    inner, failed = told.of(Completed)
    assert (inner.timeout_by, failed.timeout_by) == ("limits/tools:slow/timeout", "")
    assert failed.error == f"ToolTimeoutError: {inner.error}"


class Interruption(BaseException):
    """As a signal's handler raises it."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupts the main thread, where the tests run."""

    def handler(*_: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.get_ident()
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_caller_leaves_the_call_to_end_by_itself(
    session: Session, told: Told, gate: threading.Event, interrupt: Callable[[], None]
) -> None:
    def fn() -> str:
        interrupt()
        return str(stuck(gate, "done")())

    with pytest.raises(Interruption):
        session.run("quick", {}, fn)
    assert told.of(Completed) == []
    gate.set()
    (done,) = told.wait(Completed)
    assert (done.ok, done.text, done.timeout_by) == (True, "done", "")
    assert told.of(Ended) == []


def test_where_no_thread_can_be_had_the_call_is_released(
    session: Session, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as world:
        world.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            session.run("quick", {}, lambda: 1)
    assert len(told.of(Released)) == 1


def test_many_calls_at_once_leave_no_thread_that_has_ended(
    opened: Open, told: Told, gate: threading.Event
) -> None:
    session = opened()
    count, before = 32, workers()

    def call(n: int) -> bool:
        try:
            session.run("slow" if n % 2 else "quick", {"n": n}, stuck(gate) if n % 2 else int)
        except ToolTimeoutError:
            return False
        return True

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(call, range(count))).count(False) == count // 2
    assert workers_become(before + count // 2)
    gate.set()
    told.wait(Ended, count // 2)
    assert workers_become(before)


STUCK = """
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


def test_what_is_stuck_does_not_hold_up_the_end_of_the_process(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY % "50ms")
    done = subprocess.run(
        [sys.executable, "-c", STUCK.format(policy=str(policy))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines() == ["timed out after 0.05 s (limits/tools:slow/timeout)"] * 2
    assert done.stderr == ""


def test_a_plain_call_inside_an_event_loop_ends_in_time(session: Session, told: Told) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()

        def waits_for_the_loop() -> str:  # which waits for this call
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "free"), loop).result()

        assert session.run("quick", {}, lambda: "fine") == "fine"
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, waits_for_the_loop)
        (end,) = await asyncio.to_thread(told.wait, Ended)
        return end.text

    assert asyncio.run(main()) == "free"
