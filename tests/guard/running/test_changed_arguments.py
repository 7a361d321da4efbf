"""Arguments that change after their call was checked, and before its function runs."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from policyguard import CallRefused, Decision, Guard, Session
from policyguard.model.event import Released
from tests.guard.running.time_limits import EventLog

POLICY = """
policyguard: 1
name: changes
rules:
  ask: {tools: [refund], effect: ask, message: "refund?"}
  large:
    {tools: [refund], when: "has(call.args.order.amount) && call.args.order.amount > 100",
     effect: block, message: never}
"""
TIMEOUT = "limits: {default: {timeout: 1m}}\n"


@dataclasses.dataclass
class Order:
    amount: int


def refund(order: Any) -> Any:
    return order


async def refund_later(order: Any) -> Any:
    return order


refund_later.__name__ = "refund"


def enlarge(order: Order) -> None:
    order.amount = 1_000_000


def load(tmp_path: pathlib.Path, approver: Any, *, timeout: bool = False, **options: Any) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + (TIMEOUT if timeout else ""))
    return Guard.load(file, approver=approver, **options)


@pytest.mark.parametrize("timeout", [False, True])
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: Order(10), enlarge),
        (lambda: {"items": [10]}, lambda order: order["items"].append(1)),
        (lambda: {"amount": 10}, lambda order: order.update(amount=10.0)),
        (lambda: {"amount": 1}, lambda order: order.update(amount=True)),
    ],
)
def test_arguments_that_change_while_a_person_is_asked(
    tmp_path: pathlib.Path,
    log: EventLog,
    make: Callable[[], Any],
    change: Callable[[Any], None],
    *,
    timeout: bool,
) -> None:
    order = make()

    def approve(session: Session, decision: Decision) -> None:
        session.approve(decision, by="ann")
        change(order)

    guard = load(tmp_path, approve, timeout=timeout, listener=log)
    with guard.session("a") as session:
        with pytest.raises(CallRefused, match="changed after it was checked") as refused:
            guard.tool(refund)(order)
        decision = refused.value.decision
        assert not decision.allowed
        assert [violation.id for violation in decision.violations] == ["arguments/changed"]
        assert len(log.of_type(Released)) == 1
        assert session.check("ls", {})


@pytest.mark.parametrize("timeout", [False, True])
def test_arguments_of_an_async_tool_that_change(tmp_path: pathlib.Path, *, timeout: bool) -> None:
    async def approve(session: Session, decision: Decision) -> None:
        await asyncio.sleep(0.01)
        session.approve(decision, by="ann")

    async def main() -> None:
        guard = load(tmp_path, approve, timeout=timeout)
        async with guard.session("a"):
            order = Order(10)
            task = asyncio.ensure_future(guard.tool(refund_later)(order))
            await asyncio.sleep(0)
            enlarge(order)
            with pytest.raises(CallRefused, match="changed after it was checked"):
                await task
            assert await guard.tool(refund_later)(Order(10)) == Order(10)

    asyncio.run(main())


@pytest.mark.parametrize("value", [Order(10), [10], {"a": {1: 2}}, {3, 1}, b"x", object()])
def test_arguments_that_stay_the_same_run(tmp_path: pathlib.Path, value: Any) -> None:
    guard = load(tmp_path, None)

    def look(value: Any) -> Any:
        return value

    with guard.session("a"):
        assert guard.tool(look)(value) is value
