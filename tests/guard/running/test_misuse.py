"""Functions that do not fit how they are run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from policyguard import Session
from policyguard.model.event import Admitted, Completed
from tests.guard.running.time_limits import (
    Told,
)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize("fn", [None, "a result", 3], ids=repr)
def test_what_is_no_function_is_told_and_not_counted(
    session: Session, told: Told, tool: str, fn: Any
) -> None:
    says = f"`fn` is {fn!r}, of type `{type(fn).__name__}`, not a function"
    with pytest.raises(TypeError, match=says):
        session.run(tool, {}, fn)
    with pytest.raises(TypeError, match=says):
        asyncio.run(session.arun(tool, {}, fn))
    assert told.of(Admitted) == []


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (coroutine, "returned a coroutine, which has not run; use `arun`"),
        (functools.partial(coroutine), "use `arun`"),
        (generator, "returned a generator, which has not run; return all that it yields"),
        (async_generator, "returned a generator"),
    ],
)
def test_a_plain_run_takes_no_function_whose_work_is_still_to_come(
    session: Session, told: Told, tool: str, fn: Callable[[], Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says) as error:
        session.run(tool, {}, fn)
    assert str(error.value).startswith(f"`{tool}` ")
    (failed,) = told.of(Completed)
    assert (failed.ok, failed.blame) == (False, "harness")


@pytest.mark.parametrize("tool", ["quick", "other"])
@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda: "text", "returned nothing that can be awaited; use `run`"),
        (async_generator, "returned nothing that can be awaited"),
        (lambda: asyncio.sleep(0, generator()), "returned a generator"),
    ],
)
def test_an_async_run_takes_what_can_be_awaited_to_its_end(
    session: Session, told: Told, tool: str, fn: Callable[[], Any], says: str
) -> None:
    async def main() -> None:
        await session.arun(tool, {}, fn)

    with pytest.raises(TypeError, match=says):
        asyncio.run(main())
    (failed,) = told.of(Completed)
    assert (failed.ok, failed.blame) == (False, "harness")


@pytest.mark.parametrize("tool", ["quick", "other"])
def test_a_future_is_awaited_like_a_coroutine(session: Session, tool: str) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        return await session.arun(tool, {}, lambda: loop.run_in_executor(None, lambda: 7))

    assert asyncio.run(main()) == 7
