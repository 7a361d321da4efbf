"""Async tools under time limits."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from policyguard import CallRefused, Session, ToolTimeoutError
from policyguard.model.event import Admitted, CallEnded, Completed, Released
from tests.guard.running.time_limits import (
    TIMEOUT,
    EventLog,
    EventType,
    OpenSession,
)

current_user: ContextVar[str] = ContextVar("current_user", default="none")


async def wait_for_events(log: EventLog, kind: type[EventType], count: int = 1) -> list[EventType]:
    return await asyncio.to_thread(log.wait, kind, count)


def test_timed_out_async_call_cleans_up_before_the_caller_continues(
    open_session: OpenSession, log: EventLog
) -> None:
    session = open_session()
    steps: list[str] = []

    async def fn() -> None:
        try:
            await asyncio.sleep(TIMEOUT)
        finally:
            steps.append(f"cleaned up, {len(log.of_type(Completed))} recorded")

    async def main() -> None:
        with pytest.raises(ToolTimeoutError, match=r"after 0\.05 s"):
            await session.arun("slow", {}, fn)
        steps.append("went on")
        (end,) = log.of_type(CallEnded)
        assert (end.ok, end.error) == (False, "CancelledError")

    asyncio.run(main())
    assert steps == ["cleaned up, 1 recorded", "went on"]
    (failed,) = log.of_type(Completed)
    assert (failed.blame, failed.still_running) == ("harness", True)
    assert (failed.timeout_by, failed.ok) == ("limits/tools:slow/timeout", False)


def test_async_call_that_ignores_cancellation_ends_later(
    open_session: OpenSession, log: EventLog
) -> None:
    session = open_session(cleanup="50ms")

    async def main() -> None:
        gate = asyncio.Event()

        async def fn() -> str:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await gate.wait()
            return "late"

        with pytest.raises(ToolTimeoutError):
            await session.arun("slow", {}, fn)
        assert log.of_type(CallEnded) == []
        gate.set()
        (end,) = await wait_for_events(log, CallEnded)
        assert (end.ok, end.text) == (True, "late")

    asyncio.run(main())
    assert len(log.of_type(Completed)) == 1


def test_result_of_a_cancelled_call_is_reported_as_late(session: Session, log: EventLog) -> None:
    async def fn() -> str:
        try:
            await asyncio.sleep(TIMEOUT)
        except asyncio.CancelledError:
            return "half of it"
        return "all of it"

    async def main() -> None:
        with pytest.raises(ToolTimeoutError):
            await session.arun("slow", {}, fn)
        assert [(end.ok, end.text) for end in log.of_type(CallEnded)] == [(True, "half of it")]

    asyncio.run(main())


def test_async_tool_sees_the_callers_context(session: Session) -> None:
    async def get_user() -> str:
        return current_user.get()

    async def main() -> None:
        current_user.set("me")
        assert await session.arun("quick", {}, get_user) == "me"
        assert await session.arun("other", {}, get_user) == "me"

    asyncio.run(main())


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_cancellation_by_the_caller_is_not_a_timeout(
    session: Session, log: EventLog, tool: str
) -> None:
    cleaned: list[bool] = []

    async def main() -> None:
        started = asyncio.Event()

        async def fn() -> None:
            started.set()
            try:
                await asyncio.sleep(TIMEOUT)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append(True)

        async def with_timeout() -> None:
            async with asyncio.timeout(None) as limit:
                waiter = asyncio.create_task(started.wait())
                waiter.add_done_callback(lambda _: limit.reschedule(0))
                await session.arun(tool, {}, fn)

        with pytest.raises(TimeoutError) as error:
            await with_timeout()
        assert type(error.value) is TimeoutError
        started.clear()
        task = asyncio.create_task(session.arun(tool, {}, fn))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True, True]
        assert [done.state for done in log.of_type(Completed)] == ["cancelled", "cancelled"]

    asyncio.run(main())
    assert log.of_type(Released) == []
    assert log.of_type(CallEnded) == []


def test_call_that_outlives_its_cancelled_caller_is_recorded(
    open_session: OpenSession, log: EventLog
) -> None:
    session = open_session(cleanup="50ms")

    async def main() -> None:
        gate, started = asyncio.Event(), asyncio.Event()

        async def fn() -> str:
            started.set()
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await gate.wait()
            return "done"

        task = asyncio.create_task(session.arun("quick", {}, fn))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log.of_type(Completed) + log.of_type(Released) == []
        gate.set()
        (done,) = await wait_for_events(log, Completed)
        assert (done.ok, done.text, done.timeout_by) == (True, "done", "")

    asyncio.run(main())


def test_async_tool_whose_calls_cannot_be_compared_is_logged_once(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    @session.guard.tool
    async def store(value: object) -> None: ...

    async def main() -> None:
        async with session:
            for value in (object(), object(), 1):
                await store(value)

    with caplog.at_level(logging.WARNING, "policyguard"):
        asyncio.run(main())
    (message,) = caplog.messages
    assert "`store`: argument `value" in message


def test_exceptions_of_an_async_tool_are_its_own(session: Session, log: EventLog) -> None:
    async def fail() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(TIMEOUT)

    async def give_up() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(TimeoutError) as error:
            await session.arun("quick", {}, fail)
        assert type(error.value) is TimeoutError
        with pytest.raises(asyncio.CancelledError):
            await session.arun("quick", {}, give_up)

    asyncio.run(main())
    assert [(event.error, event.state) for event in log.of_type(Completed)] == [
        ("TimeoutError", ""),
        ("CancelledError", "cancelled"),
    ]
    assert log.of_type(Released) == []


def test_two_hundred_tasks_share_one_budget_exactly(
    open_session: OpenSession, log: EventLog
) -> None:
    session = open_session("budgets: {all: {calls: 100}}\n")
    ran: list[int] = []

    async def fn(number: int) -> int:
        ran.append(number)
        if number % 2:
            await asyncio.sleep(TIMEOUT)
        return number

    async def call(number: int) -> str:
        try:
            await session.arun("slow" if number % 2 else "quick", {"n": number}, lambda: fn(number))
        except ToolTimeoutError:
            return "out of time"
        except CallRefused:
            return "refused"
        return "done"

    async def main() -> list[str]:
        return await asyncio.gather(*map(call, range(200)))

    results = asyncio.run(main())
    assert {result: results.count(result) for result in results} == {
        "done": 50,
        "out of time": 50,
        "refused": 100,
    }
    assert len(ran) == len(log.of_type(Admitted)) == len(log.of_type(Completed)) == 100
    assert len(log.of_type(CallEnded)) == 50
