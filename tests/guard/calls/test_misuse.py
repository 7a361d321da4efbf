"""The public API when it is misused: errors, ids, owners, and what async code must not lose."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from policyguard import ClosedError, Guard, PolicyguardError, Refused, UnknownCallError


def test_what_is_closed_is_an_error_of_our_own() -> None:
    guard = Guard.load("core")
    session = guard.session("s")
    session.close()
    with pytest.raises(ClosedError, match=r"open it again with `guard.session`"):
        session.turn()
    guard.close()
    with pytest.raises(PolicyguardError, match="the guard is closed: load another"):
        guard.session("t")


def test_a_closed_session_knows_its_calls_and_no_others() -> None:
    session = Guard.load("core").session("s")
    session.check("read", {"path": "a"}, call="toolu_1")
    session.close()
    for known in ("c1", "toolu_1"):
        recorded = session.record(known, result="text")
        assert not recorded.counted
        assert recorded.errors[0].id == "session/closed"
    for unknown in ("c2", "nope"):
        with pytest.raises(UnknownCallError, match="the session is closed: open it again"):
            session.record(unknown, result="text")


def test_a_host_cannot_use_an_id_of_our_own() -> None:
    session = Guard.load("core").session("s")
    session.check("read", {"path": "a"})
    for call in ("c1", "c7"):
        with pytest.raises(
            ValueError, match=f"`call` is `{call}`, like an id of policyguard's own"
        ):
            session.check("read", {"path": "b"}, call=call)
    assert session.record("c1", result="text").counted
    assert session.check("read", {"path": "b"}, call="c0").id == "c2"


def test_seconds_are_no_time_of_a_call() -> None:
    session = Guard.load("core").session("s")
    with pytest.raises(TypeError, match=r"`at` is .*, not an aware `datetime` or nanoseconds"):
        session.check("read", {}, at=time.time())  # type: ignore[arg-type]  # the mistake


def test_a_negative_duration_counts_as_zero() -> None:
    session = Guard.load("core").session("s")
    events: list[object] = []
    session.guard.on(events.append)
    session.record(session.check("read", {}), result="x", duration=-3)
    assert [event.duration for event in events if hasattr(event, "duration")] == [0.0]


def test_a_time_budget_is_left_as_a_duration(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "policyguard: 1\nname: p\nbudgets:\n  task: {time: 10m}\n"
        "limits: {default: {repeat: {max: 1}}}\n"
    )
    session = Guard.load(policy, clock=lambda: 0).session("s")
    for second in (0, 1, 2):
        decision = session.check("read", {"path": "a"}, at=second * 10**9)
        if decision:
            session.record(decision, result="x", at=second * 10**9)
    assert not decision
    assert decision.message.endswith("Left: budgets/task 9m58s")
    assert decision.left == {"budgets/task": 598.0}


def test_a_parent_cannot_be_changed_or_added() -> None:
    guard = Guard.load("core")
    first, second = guard.session("p1"), guard.session("p2")
    guard.session("child", parent=first)
    assert guard.session("child", parent="p1") is guard.session("child")
    with pytest.raises(ValueError, match="was opened for parent `p1`, not for `p2`"):
        guard.session("child", parent=second)
    guard.session("alone")
    with pytest.raises(ValueError, match="was opened without parent, not for `p1`"):
        guard.session("alone", parent=first)


def test_what_is_no_decision_cannot_be_approved() -> None:
    session = Guard.load("core").session("s")
    with pytest.raises(TypeError, match="not the decision that `check` returned"):
        session.approve("c1", by="ann")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match="not a decision or a call's id"):
        session.record(5)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match=r"a guard is made by `Guard\.load`, not from 'core'"):
        Guard("core")  # type: ignore[arg-type]  # the mistake


def test_a_preview_refuses_an_id_in_flight_like_a_check() -> None:
    session = Guard.load("core").session("s")
    session.check("read", {}, call="toolu_1")
    with pytest.raises(ValueError, match="call `toolu_1` is in flight"):
        session.preview("read", {}, call="toolu_1")


def test_an_mcp_result_may_be_any_object() -> None:
    session = Guard.load("core").session("s")
    for name in ("isError", "is_error"):
        block = SimpleNamespace(type="text", text="no such file")
        result = SimpleNamespace(content=[block], **{name: True})
        recorded = session.record(session.check("read", {"n": name}), result=result)
        assert not recorded.outcome.ok


def test_events_reach_async_listeners_before_a_block_ends(tmp_path: Path) -> None:
    taken: list[object] = []

    async def listener(event: object) -> None:
        await asyncio.sleep(0)
        taken.append(event)

    async def main(store: Path | None) -> None:
        async with Guard.load("core", store=store) as guard:
            guard.on(listener)
            async with guard.session("s") as session:
                for number in range(3):
                    await session.acheck("read", {"n": number})
            assert len(taken) == 4
            session.end()
        assert len(taken) == 5

    for store in (None, tmp_path / "state" / "store.db"):
        taken.clear()
        asyncio.run(main(store))


def test_a_session_that_is_opened_later_is_one_object(tmp_path: Path) -> None:
    async def main() -> None:
        guard = Guard.load("core", store=tmp_path / "state" / "store.db")
        first = guard.session("s", user="ann")
        assert not first.closed
        assert guard.session("s") is first
        with pytest.raises(ValueError, match="was opened for user `ann`, not for `bob`"):
            guard.session("s", user="bob")
        async with first:
            assert guard.session("s") is first
            assert (await first.acheck("read", {})).allowed
        guard.close()

    asyncio.run(main())


def test_an_event_shows_what_it_has() -> None:
    assert repr(Refused("s", 1, tool="x")) == "Refused(session='s', at=1, tool='x')"


@pytest.mark.parametrize("wrong", [("read",), "read", ("read", {}, {}), (7, {}), None])
def test_a_batch_with_something_else_admits_nothing(wrong: object) -> None:
    session = Guard.load("core").session("s")
    with pytest.raises(TypeError, match=r"`calls\[1\]"):
        session.check_batch([("read", {}), wrong], batch="m1")
    assert not session._state.in_flight
