"""What can be a guarded tool, and what its arguments are."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from policyguard import Session, ToolTimeoutError
from policyguard.model.event import Admitted, Completed
from tests.guard.running.time_limits import (
    Told,
    stuck,
)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Engine:
    """Something with methods, and a state that is no argument of theirs."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, query: str) -> str:
        self.calls += 1
        return query


class AsyncEngine:
    async def __call__(self, query: str) -> str:
        return query


def admitted(told: Told) -> list[tuple[str, dict[str, Any] | None]]:
    return [(event.tool, event.args) for event in told.of(Admitted)]


def test_whose_method_it_is_is_no_argument(session: Session, told: Told) -> None:
    tool = session.guard.tool

    class Search:
        @tool
        def find(self, query: str) -> str:
            return query

        @tool
        async def later(self, query: str) -> str:
            return query

        @classmethod
        @tool
        def named(cls, query: str) -> str:
            return cls.__name__ + query

        @staticmethod
        @tool
        def plain(query: str) -> str:
            return query

    with session:
        assert Search().find("a") == "a"
        assert Search.find(Search(), query="b") == "b"
        assert asyncio.run(Search().later("c")) == "c"
        assert Search.named("d") == "Searchd"
        assert Search().plain("e") == "e"
    names = ["find", "find", "later", "named", "plain"]
    assert admitted(told) == [(n, {"query": q}) for n, q in zip(names, "abcde", strict=True)]


def test_what_can_be_called_can_be_a_tool(session: Session, told: Told) -> None:
    tool = session.guard.tool
    engine = Engine()

    def search(query: str, *, where: str = "here") -> str:
        return where + query

    with session:
        assert tool(functools.partial(search, where="there "))("a") == "there a"
        assert tool(engine)("b") == "b"
        assert tool(engine.__call__)("c") == "c"
        assert asyncio.run(tool(functools.partial(AsyncEngine()))(query="d")) == "d"
    names = ["Engine", "__call__", "AsyncEngine"]
    assert admitted(told) == [
        ("search", {"query": "a", "where": "there "}),
        *((n, {"query": q}) for n, q in zip(names, "bcd", strict=True)),
    ]
    assert engine.calls == 2


def refund(order: str, amount: int = 500) -> None: ...


def extra(**kwargs: Any) -> None: ...


def several(*args: Any, **kwargs: Any) -> None: ...


def placed(amount: int, /, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "named"),
    [
        (refund, ("A1",), {}, {"order": "A1", "amount": 500}),
        (refund, ("A1", 500), {}, {"order": "A1", "amount": 500}),
        (refund, (), {"amount": 9, "order": "A1"}, {"order": "A1", "amount": 9}),
        (extra, (), {}, {}),
        (extra, (), {"amount": 9, "kwargs": 1}, {"amount": 9, "kwargs": 1}),
        (several, (1, 2), {"amount": 9}, {"args": (1, 2), "amount": 9}),
        (
            several,
            (1,),
            {"args": 3, "kwargs": 4, "amount": 9},
            {"args": (1,), "amount": 9, "kwargs": {"args": 3, "kwargs": 4}},
        ),
        (placed, (5,), {"amount": 9, "n": 1}, {"amount": 5, "n": 1, "kwargs": {"amount": 9}}),
    ],
)
def test_rules_see_every_argument_by_its_name(
    session: Session,
    told: Told,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    named: dict[str, Any],
) -> None:
    with session:
        session.guard.tool(fn)(*args, **kwargs)
    assert admitted(told) == [(fn.__name__, named)]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (generator, "`generator` is a generator; a tool returns its whole result at once"),
        (async_generator, "`async_generator` is a generator"),
        (classmethod(lambda cls: 1), "put `@guard.tool` below `@classmethod`"),
        (staticmethod(lambda: 1), "put `@guard.tool` below `@staticmethod`"),
        (3, "takes a function, not a `int`"),
        (dict.pop, "parameters of `pop` are unknown"),
    ],
)
def test_what_cannot_be_a_tool_is_said_at_once(session: Session, fn: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        session.guard.tool(fn)


def test_a_guarded_tool_has_the_time_that_the_policy_gives(
    session: Session, told: Told, gate: threading.Event
) -> None:
    @session.guard.tool
    def slow() -> Any:
        return stuck(gate)()

    with session, pytest.raises(ToolTimeoutError):
        slow()
    assert len(told.of(Completed)) == 1
