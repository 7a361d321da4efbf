"""Sessions under asyncio: the event loop is never blocked for long."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from policyguard import CallRefused, Decision, Guard, Session
from policyguard.model.event import Admitted, Completed, Event, SessionStarted
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps

POLICY = """
policyguard: 1
name: loop
budgets: {three: {calls: 3}}
rules: {pay: {tools: [pay], effect: ask}}
"""
DELAY = 0.8
"""Seconds that a store or an approver takes."""


def load(folder: Path, *, durable: bool = False, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db" if durable else None, **options)


async def longest_delay(action: Awaitable[Any]) -> float:
    """Return the longest time that the event loop was blocked during `action`."""
    delays = [0.0]

    async def measure() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            delays.append(time.monotonic() - before)

    measuring = asyncio.create_task(measure())
    await asyncio.sleep(0)
    await action
    await asyncio.sleep(0.01)  # until the last delay is measured
    measuring.cancel()
    return max(delays)


@pytest.mark.parametrize("durable", [True, False])
def test_async_session_checks_runs_and_records(tmp_path: Path, durable: bool) -> None:
    guard = load(tmp_path, durable=durable)

    async def main() -> None:
        async with guard.session("s") as session:
            decision = await session.acheck("x", call="toolu_01")
            assert (await session.arecord("toolu_01", result="fine")).counted
            assert await session.arun("x", {}, lambda: asyncio.sleep(0, "done")) == "done"
            assert not (await session.arecord(decision, result="again")).counted
        assert session.closed
        async with guard.session("s") as session:
            assert (await session.acheck("x")).allowed
            assert not (await session.acheck("x")).allowed
            with pytest.raises(CallRefused):
                await session.arun("x", {}, lambda: asyncio.sleep(0))

    asyncio.run(main())


def test_locked_store_does_not_block_the_event_loop(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=True)
    other = sqlite3.connect(
        tmp_path / "state" / "store.db", isolation_level=None, check_same_thread=False
    )

    async def main() -> None:
        for action in (open_and_call, open_and_end):
            other.execute("BEGIN IMMEDIATE")
            timer = threading.Timer(DELAY, lambda: other.execute("ROLLBACK"))
            timer.start()
            await action()
            await asyncio.to_thread(timer.join)

    async def open_and_call() -> None:
        async with guard.session("s") as session:
            await session.arecord(await session.acheck("x"), result="fine")

    async def open_and_end() -> None:
        async with guard.session("s") as session:
            await asyncio.to_thread(session.end)

    assert asyncio.run(longest_delay(main())) < DELAY / 2
    other.close()


def approve(session: Session, decision: Decision) -> None:
    time.sleep(DELAY)
    session.approve(decision, by="ann")


async def async_approve(session: Session, decision: Decision) -> None:
    await asyncio.sleep(DELAY)
    session.approve(decision, by="ann")


class AsyncApprover:
    async def __call__(self, session: Session, decision: Decision) -> None:
        await async_approve(session, decision)


@pytest.mark.parametrize(
    "approver",
    [
        approve,
        pytest.param(async_approve, marks=pytest.mark.slow),
        AsyncApprover(),
        lambda *a: async_approve(*a),
    ],
)
def test_approver_does_not_block_the_event_loop(
    tmp_path: Path, approver: Callable[..., Any]
) -> None:
    guard = load(tmp_path, approver=approver)
    allowed: list[bool] = []

    async def main() -> None:
        async with guard.session("s") as session:
            allowed.append((await session.acheck("pay")).allowed)

    assert asyncio.run(longest_delay(main())) < DELAY / 2
    assert allowed == [True]


@pytest.mark.parametrize("approver", [async_approve, AsyncApprover(), lambda *a: async_approve(*a)])
def test_sync_check_refuses_to_await_an_async_approver(
    tmp_path: Path, approver: Callable[..., Any]
) -> None:
    decision = load(tmp_path, approver=approver).session("s").check("pay")
    assert not decision.allowed
    assert decision.errors[0].id == "approver"
    assert "use `acheck`" in decision.errors[0].error


def test_failing_async_approver_leaves_the_call_refused(tmp_path: Path) -> None:
    async def fails(session: Session, decision: Decision) -> None:
        raise RuntimeError("away")

    async def main() -> Decision:
        return await load(tmp_path, approver=fails).session("s").acheck("pay")

    decision = asyncio.run(main())
    assert (decision.allowed, decision.errors[0].error) == (False, "RuntimeError: away")


@pytest.mark.parametrize("durable", [True, False])
def test_async_listener_is_awaited_in_order(tmp_path: Path, durable: bool) -> None:
    received: list[type[Event]] = []

    async def listener(event: Event) -> None:
        await asyncio.sleep(0.01 if isinstance(event, SessionStarted) else 0)
        received.append(type(event))

    guard = load(tmp_path, durable=durable, listener=listener)

    async def main() -> None:
        async with guard.session("s") as session:
            await session.arecord(await session.acheck("x"), result="fine")
        while len(received) < 3:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 10))
    assert received == [SessionStarted, Admitted, Completed]


def test_async_listener_without_a_loop_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(event: Event) -> None: ...

    load(tmp_path, listener=listener).session("s")
    assert "an async listener missed SessionStarted: no event loop is running" in caplog.text


def test_closed_session_without_a_journal_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    guard = Guard.load(
        file, store=MemoryStore(caps=Caps(constraints=9, grants=9, evidence=9, anchors=9))
    )

    async def main() -> None:
        session = guard.session("s")
        await session.acheck("x")
        session.close()
        again = guard.session("s")
        assert (await again.acheck("x")).id == "c2"

    asyncio.run(main())


def test_async_listener_after_its_loop_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[Event] = []

    async def listener(event: Event) -> None:
        received.append(event)

    guard = load(tmp_path, listener=listener)

    async def main() -> None:
        async with guard.session("s"):
            pass

    asyncio.run(main())
    assert [type(event) for event in received] == [SessionStarted]
    guard.session("s").check("x")
    assert "an async listener missed Admitted: no event loop is running" in caplog.text


def test_cancelled_check_counts_nothing(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=True)
    session = guard.session("s")
    guard._lock.acquire()

    async def main() -> None:
        task = asyncio.create_task(session.acheck("x"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    guard._lock.release()
    deadline = time.monotonic() + 10
    while session._pipeline.last_number == 0 or session._state.in_flight:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [session.check("x").allowed for _ in range(4)] == [True, True, True, False]


def test_session_under_a_loop_opens_on_first_use(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=True)

    async def main() -> None:
        session = guard.session("s", user="ann")
        assert "not open yet" in repr(session)
        assert session.check("x").allowed
        assert guard.session("s") is session
        with pytest.raises(ValueError, match="was opened for user `ann`"):
            guard.session("s", user="bob")

    asyncio.run(main())


def test_tools_use_the_surrounding_async_session(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=True)

    @guard.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        async with guard.session("s"):
            assert await asyncio.gather(add(1, 2), add(3, 4)) == [3, 7]
        with pytest.raises(RuntimeError, match="outside a session"):
            await add(1, 2)

    asyncio.run(main())


def test_run_and_arun_pass_on_call_details(tmp_path: Path) -> None:
    events: list[Any] = []
    guard = load(tmp_path)
    guard.on(events.append, Admitted, Completed)
    session = guard.session("s")
    options: dict[str, Any] = {"server": "files", "batch": "m1", "cost": 0.5, "tokens": 7}
    session.run("x", {}, lambda: "done", call="toolu_01", **options)
    asyncio.run(session.arun("x", {}, lambda: asyncio.sleep(0, "done"), call="toolu_02", **options))
    for admitted, completed, call_id in (
        (events[0], events[1], "toolu_01"),
        (events[2], events[3], "toolu_02"),
    ):
        assert (admitted.server, admitted.batch, admitted.host_call) == ("files", "m1", call_id)
        assert (completed.cost, completed.tokens) == (0.5, 7)


def test_advice_is_appended_to_mcp_results(tmp_path: Path) -> None:
    types = pytest.importorskip("mcp.types")
    rule = "rules: {hm: {tools: [x], effect: advise, message: careful}}\n"
    (tmp_path / "policy.yaml").write_text(f"policyguard: 1\nname: advice\n{rule}")
    session = Guard.load(tmp_path / "policy.yaml").session("s")
    result_dict: dict[str, Any] = {"content": [{"type": "text", "text": "fine"}], "isError": False}
    result = session.run("x", {}, lambda: result_dict)
    assert [block["text"].partition("\n")[0] for block in result["content"]] == [
        "fine",
        "A note on `x`:",
    ]
    assert len(result_dict["content"]) == 1
    model = types.CallToolResult(content=[types.TextContent(type="text", text="fine")])
    returned = session.run("x", {}, lambda: model)
    assert type(returned) is type(model)
    assert "careful" in returned.content[1].text
    assert session.run("x", {}, lambda: {"content": "no blocks"}) == {"content": "no blocks"}


@pytest.mark.parametrize("durable", [True, False])
def test_leaving_the_block_of_a_guard_closes_it(tmp_path: Path, durable: bool) -> None:
    async def main() -> None:
        async with load(tmp_path, durable=durable) as guard:
            session = guard.session("s")
            assert (await session.acheck("x")).allowed
        assert guard.closed
        assert session.closed
        async with load(tmp_path, durable=durable) as other:
            assert (await other.session("s").acheck("x")).allowed

    asyncio.run(main())


def test_event_loop_does_not_wait_for_the_lock_of_the_guard(tmp_path: Path) -> None:
    guard = load(tmp_path, durable=True)
    released = threading.Event()

    def hold_lock(taken: threading.Event) -> None:
        with guard._lock:  # as a check does that waits for the store
            taken.set()
            released.wait(60)

    async def main() -> None:
        session = guard.session("open")
        decision = await session.acheck("x", call="mine")
        taken = threading.Event()
        holder = threading.Thread(target=hold_lock, args=(taken,))
        holder.start()
        taken.wait()
        try:
            assert guard.session("open") is session
            with pytest.raises(ValueError, match="without user, not for `ann`"):
                guard.session("open", user="ann")
            assert guard.session("new") is guard.session("new")
            assert session._pipeline.hold(decision.id) is not None
            assert not released.is_set()
        finally:
            released.set()
            holder.join()

    running = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    running.start()
    running.join(30)
    assert released.is_set()
