"""Which callables can be guarded tools, and what their arguments are."""

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
    EventLog,
    make_stuck_tool,
)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Engine:
    """A callable object with state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, query: str) -> str:
        self.calls += 1
        return query


class AsyncEngine:
    async def __call__(self, query: str) -> str:
        return query


def admitted_calls(log: EventLog) -> list[tuple[str, dict[str, Any] | None]]:
    return [(event.tool, event.args) for event in log.of_type(Admitted)]


@pytest.mark.parametrize(
    ("keys", "names"), [((1, 2.5), ["1", "2.5"]), (((1, "b"), (2,)), ['[1,"b"]', "[2]"])]
)
def test_keys_that_are_no_texts_are_named_as_in_json(
    session: Session, log: EventLog, keys: tuple[object, ...], names: list[str]
) -> None:
    def store(value: object) -> None: ...

    with session:
        session.guard.tool(store)(dict.fromkeys(keys))
    ((_, args),) = admitted_calls(log)
    assert args is not None
    assert [*args["value"]] == names


def test_self_and_cls_are_not_arguments(session: Session, log: EventLog) -> None:
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
    assert admitted_calls(log) == [
        (name, {"query": query}) for name, query in zip(names, "abcde", strict=True)
    ]


def test_any_callable_can_be_a_tool(session: Session, log: EventLog) -> None:
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
    assert admitted_calls(log) == [
        ("search", {"query": "a", "where": "there "}),
        *((name, {"query": query}) for name, query in zip(names, "bcd", strict=True)),
    ]
    assert engine.calls == 2


def refund(order: str, amount: int = 500) -> None: ...


def keywords(**kwargs: Any) -> None: ...


def variadic(*args: Any, **kwargs: Any) -> None: ...


def positional_only(amount: int, /, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "expected"),
    [
        (refund, ("A1",), {}, {"order": "A1", "amount": 500}),
        (refund, ("A1", 500), {}, {"order": "A1", "amount": 500}),
        (refund, (), {"amount": 9, "order": "A1"}, {"order": "A1", "amount": 9}),
        (keywords, (), {}, {}),
        (keywords, (), {"amount": 9, "kwargs": 1}, {"amount": 9, "kwargs": 1}),
        (variadic, (1, 2), {"amount": 9}, {"args": (1, 2), "amount": 9}),
        (
            variadic,
            (1,),
            {"args": 3, "kwargs": 4, "amount": 9},
            {"args": (1,), "amount": 9, "kwargs": {"args": 3, "kwargs": 4}},
        ),
        (
            positional_only,
            (5,),
            {"amount": 9, "n": 1},
            {"amount": 5, "n": 1, "kwargs": {"amount": 9}},
        ),
    ],
)
def test_rules_see_arguments_by_name(
    session: Session,
    log: EventLog,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    with session:
        session.guard.tool(fn)(*args, **kwargs)
    assert admitted_calls(log) == [(fn.__name__, expected)]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (generator, "`generator` is a generator; a tool returns its whole result at once"),
        (async_generator, "`async_generator` is a generator"),
        (classmethod(lambda cls: 1), "put `@guard.tool` below `@classmethod`"),
        (staticmethod(lambda: 1), "put `@guard.tool` below `@staticmethod`"),
        (3, "takes a function, not a `int`"),
        (dict.pop, "parameters of `pop` are unknown"),
    ],
)
def test_unsuitable_tools_are_errors(session: Session, fn: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        session.guard.tool(fn)


def test_guarded_tool_has_the_policys_timeout(
    session: Session, log: EventLog, gate: threading.Event
) -> None:
    @session.guard.tool
    def slow() -> Any:
        return make_stuck_tool(gate)()

    with session, pytest.raises(ToolTimeoutError):
        slow()
    assert len(log.of_type(Completed)) == 1
