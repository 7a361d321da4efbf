"""Functions that cannot be run the way they are passed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from policyguard import Session
from policyguard.model.event import Admitted, Completed
from tests.guard.running.time_limits import (
    EventLog,
)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize("fn", [None, "a result", 3], ids=repr)
def test_argument_that_is_not_a_function_is_an_error(
    session: Session, log: EventLog, tool: str, fn: Any
) -> None:
    message = f"`fn` is {fn!r}, of type `{type(fn).__name__}`, not a function"
    with pytest.raises(TypeError, match=message):
        session.run(tool, {}, fn)
    with pytest.raises(TypeError, match=message):
        asyncio.run(session.arun(tool, {}, fn))
    assert log.of_type(Admitted) == []


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (coroutine, "returned a coroutine, which has not run; use `arun`"),
        (functools.partial(coroutine), "use `arun`"),
        (generator, "returned a generator, which has not run; return all that it yields"),
        (async_generator, "returned a generator"),
    ],
)
def test_sync_run_rejects_coroutines_and_generators(
    session: Session, log: EventLog, tool: str, fn: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message) as error:
        session.run(tool, {}, fn)
    assert str(error.value).startswith(f"`{tool}` ")
    (failed,) = log.of_type(Completed)
    assert (failed.ok, failed.blame) == (False, "harness")


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda: "text", "returned nothing that can be awaited; use `run`"),
        (async_generator, "returned nothing that can be awaited"),
        (lambda: asyncio.sleep(0, generator()), "returned a generator"),
    ],
)
def test_async_run_rejects_results_that_cannot_be_awaited(
    session: Session, log: EventLog, tool: str, fn: Callable[[], Any], message: str
) -> None:
    async def main() -> None:
        await session.arun(tool, {}, fn)

    with pytest.raises(TypeError, match=message):
        asyncio.run(main())
    (failed,) = log.of_type(Completed)
    assert (failed.ok, failed.blame) == (False, "harness")


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_futures_are_awaited_like_coroutines(session: Session, tool: str) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        return await session.arun(tool, {}, lambda: loop.run_in_executor(None, lambda: 7))

    assert asyncio.run(main()) == 7
