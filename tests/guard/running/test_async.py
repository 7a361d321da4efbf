"""Async functions, in the time that they have."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from policyguard import CallRefused, Session, ToolTimeoutError
from policyguard.model.event import Admitted, Completed, Ended, Released
from tests.guard.running.time_limits import (
    PATIENCE,
    E,
    Open,
    Told,
)

who: ContextVar[str] = ContextVar("who", default="nobody")


async def patiently(told: Told, kind: type[E], count: int = 1) -> list[E]:
    return await asyncio.to_thread(told.wait, kind, count)


def test_an_async_call_out_of_time_is_cancelled_and_cleans_up_first(
    opened: Open, told: Told
) -> None:
    session = opened()
    steps: list[str] = []

    async def fn() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            steps.append(f"cleaned up, {len(told.of(Completed))} recorded")

    async def main() -> None:
        with pytest.raises(ToolTimeoutError, match=r"after 0\.05 s"):
            await session.arun("slow", {}, fn)
        steps.append("went on")
        (end,) = told.of(Ended)
        assert (end.ok, end.error) == (False, "CancelledError")

    asyncio.run(main())
    assert steps == ["cleaned up, 1 recorded", "went on"]
    (failed,) = told.of(Completed)
    assert (failed.blame, failed.still_running) == ("harness", True)
    assert (failed.timeout_by, failed.ok) == ("limits/tools:slow/timeout", False)


def test_an_async_call_that_will_not_stop_is_left_to_itself(opened: Open, told: Told) -> None:
    session = opened(cleanup="50ms")

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
        assert told.of(Ended) == []
        gate.set()
        (end,) = await patiently(told, Ended)
        assert (end.ok, end.text) == (True, "late")

    asyncio.run(main())
    assert len(told.of(Completed)) == 1


def test_what_a_cancelled_call_gives_all_the_same_is_late(session: Session, told: Told) -> None:
    async def fn() -> str:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            return "half of it"
        return "all of it"

    async def main() -> None:
        with pytest.raises(ToolTimeoutError):
            await session.arun("slow", {}, fn)
        assert [(end.ok, end.text) for end in told.of(Ended)] == [(True, "half of it")]

    asyncio.run(main())


def test_an_async_function_knows_the_callers_context(session: Session) -> None:
    async def whose() -> str:
        return who.get()

    async def main() -> None:
        who.set("me")
        assert await session.arun("quick", {}, whose) == "me"
        assert await session.arun("other", {}, whose) == "me"

    asyncio.run(main())


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_the_callers_own_cancellation_is_no_timeout(
    session: Session, told: Told, tool: str
) -> None:
    cleaned: list[bool] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def fn() -> None:
            begun.set()
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                await asyncio.sleep(0.01)
                cleaned.append(True)

        async def in_less_time() -> None:
            async with asyncio.timeout(None) as limit:
                started = asyncio.create_task(begun.wait())
                started.add_done_callback(lambda _: limit.reschedule(0))
                await session.arun(tool, {}, fn)

        with pytest.raises(TimeoutError) as error:
            await in_less_time()
        assert type(error.value) is TimeoutError
        begun.clear()
        task = asyncio.create_task(session.arun(tool, {}, fn))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True, True]
        assert len(told.of(Released)) == 2

    asyncio.run(main())
    assert told.of(Completed) == []
    assert told.of(Ended) == []


def test_a_call_that_outlives_its_cancelled_caller_reports_itself(opened: Open, told: Told) -> None:
    session = opened(cleanup="50ms")

    async def main() -> None:
        gate, begun = asyncio.Event(), asyncio.Event()

        async def fn() -> str:
            begun.set()
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await gate.wait()
            return "done"

        task = asyncio.create_task(session.arun("quick", {}, fn))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told.of(Completed) + told.of(Released) == []
        gate.set()
        (done,) = await patiently(told, Completed)
        assert (done.ok, done.text, done.timeout_by) == (True, "done", "")

    asyncio.run(main())


def test_what_an_async_function_raises_in_time_is_its_own(session: Session, told: Told) -> None:
    async def fail() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(PATIENCE)

    async def give_up() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(TimeoutError) as error:
            await session.arun("quick", {}, fail)
        assert type(error.value) is TimeoutError
        with pytest.raises(asyncio.CancelledError):
            await session.arun("quick", {}, give_up)

    asyncio.run(main())
    assert [(one.error, one.timeout_by) for one in told.of(Completed)] == [("TimeoutError", "")]
    assert len(told.of(Released)) == 1


def test_two_hundred_tasks_share_one_budget_exactly(opened: Open, told: Told) -> None:
    session = opened("budgets: {all: {calls: 100}}\n")
    ran: list[int] = []

    async def fn(n: int) -> int:
        ran.append(n)
        if n % 2:
            await asyncio.sleep(PATIENCE)
        return n

    async def call(n: int) -> str:
        try:
            await session.arun("slow" if n % 2 else "quick", {"n": n}, lambda: fn(n))
        except ToolTimeoutError:
            return "out of time"
        except CallRefused:
            return "refused"
        return "done"

    async def main() -> list[str]:
        return await asyncio.gather(*map(call, range(200)))

    answers = asyncio.run(main())
    assert {answer: answers.count(answer) for answer in answers} == {
        "done": 50,
        "out of time": 50,
        "refused": 100,
    }
    assert len(ran) == len(told.of(Admitted)) == len(told.of(Completed)) == 100
    assert len(told.of(Ended)) == 50
