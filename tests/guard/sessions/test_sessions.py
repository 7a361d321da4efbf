"""Sessions and guarded tools, and their errors."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard import CallRefused, Effect, Guard, PolicyError
from policyguard.model.event import Admitted, Completed, Event, Refused, Released, SessionStarted

LOOP = "policyguard: 1\nname: loop\nlimits: {default: {repeat: {max: 2, same: call}}}\n"


def _guard(tmp_path: Path, policy: str = LOOP, **options: Any) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, **options)


def test_same_id_returns_the_same_session(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    one = guard.session("a")
    assert guard.session("a") is one
    one.end()
    assert guard.session("a") is not one


def test_ended_session_refuses(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    session.end()
    session.end()
    decision = session.check("x")
    assert (decision.effect, decision.violations[0].id) == ("block", "session/closed")


def test_decision_is_truthy_if_the_call_is_allowed(tmp_path: Path) -> None:
    rules = ", ".join(
        f"{effect}: {{tools: [{effect}], effect: {effect}}}"
        for effect in ("advise", "ask", "block", "halt")
    )
    lenient_rule = "lenient: {tools: [lenient], effect: ask, approval: {otherwise: allow}}"
    guard = _guard(tmp_path, f"policyguard: 1\nname: p\nrules: {{{rules}, {lenient_rule}}}\n")
    for tool, allowed in (
        ("free", True),
        ("advise", True),
        ("lenient", True),
        ("ask", False),
        ("block", False),
        ("halt", False),
    ):
        decision = guard.session(tool).check(tool)
        assert (bool(decision), decision.allowed) == (allowed, allowed)


def test_decisions_are_hashable(tmp_path: Path) -> None:
    guard = _guard(tmp_path, LOOP + "budgets: {few: {calls: 2}}\n")
    session = guard.session("a")
    decisions = [session.check("x", {"n": number}) for number in range(3)]
    assert decisions[2].left
    assert len({*decisions, *decisions}) == 3
    assert hash(decisions[2]) == hash(msgspec.structs.replace(decisions[2]))


def test_fast_path_resumes_after_enough_other_calls(tmp_path: Path) -> None:
    policy = (
        "policyguard: 1\nname: s\nlimits: {default: {repeat: {max: 1, same: call, halt_at: 9}}}\n"
    )
    session = _guard(tmp_path, policy).session("a")
    state = session._state
    session.record(session.check("x"), result="1")
    assert state.on_fast_path
    for _ in range(2):
        assert not session.check("x").allowed
    assert not state.on_fast_path
    for number in range(2):
        assert not state.on_fast_path
        session.record(session.check("y", {"n": number}), result="1")
    assert state.on_fast_path
    assert not session.check("x").allowed


def test_halt_of_the_parent_applies_on_the_fast_path(tmp_path: Path) -> None:
    policy = LOOP + "rules: {stop: {tools: [stop], effect: halt}}\n"
    guard = _guard(tmp_path, policy)
    child = guard.session("child", parent=guard.session("parent"))
    child.record(child.check("x"), result="1")
    assert child._state.on_fast_path
    assert guard.session("parent").check("stop").effect == "halt"
    assert child.check("y").effect == "halt"


def test_halt_of_the_parent_ends_with_its_turn(tmp_path: Path) -> None:
    policy = LOOP + "rules: {stop: {tools: [stop], effect: halt}}\n"
    guard = _guard(tmp_path, policy)
    parent = guard.session("parent")
    child = guard.session("child", parent=parent)
    assert parent.check("stop").effect == "halt"
    assert child.check("y").effect == "halt"
    parent.turn()
    assert child.check("y").allowed
    assert child.check("stop").effect == "halt"
    parent.turn()
    assert child.check("y").effect == "halt", "this one is its own"
    child.turn()
    assert child.check("y").allowed


@pytest.mark.parametrize("id_", ["1", ""])
def test_least_recently_used_session_is_evicted_first(tmp_path: Path, id_: str) -> None:
    guard = _guard(tmp_path, LOOP + "bounds: {sessions: 2}\n")
    first, second = guard.session(id_), guard.session("2")
    first.check("x")
    guard.session("3")
    assert second.closed
    assert not first.closed


def test_decision_has_a_message_and_structured_fields(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    for _ in range(2):
        assert session.check("read", {"path": "x"}).message == ""
    decision = session.check("read", {"path": "x"})
    assert not decision.allowed
    assert decision.effect is Effect.BLOCK
    assert decision.message.splitlines()[0] == "`read` was not run."
    assert "limits/default/repeat" in decision.message
    assert decision.structured == {
        "status": "blocked",
        "reason": "repeat",
        "action": decision.violations[0].instead,
        "rule": "limits/default/repeat",
        "limit": 2,
        "used": 2,
        "remaining": 0,
        "retry_after": None,
        "constraint": None,
        "budgets": {},
    }


def test_effects_are_ordered_and_equal_to_their_names() -> None:
    assert sorted(Effect) == ["allow", "advise", "ask", "block", "halt"]
    assert Effect.ALLOW < "advise" < Effect.ASK
    assert max(Effect.BLOCK, Effect.HALT, Effect.ADVISE) is Effect.HALT


def test_listener_receives_every_event_in_order(tmp_path: Path) -> None:
    events: list[Event] = []
    session = _guard(tmp_path, listener=events.append).session("a", agent="b")
    decision = session.check("x")
    session.record(decision, result={"b": 1}, cost=0.5)
    session.release(session.check("x"))
    session.check("x")
    session.check("x")
    kinds = [type(event) for event in events]
    assert kinds == [SessionStarted, Admitted, Completed, Admitted, Released, Admitted, Refused]
    assert events[2].text == '{"b":1}'


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"a": float("nan")}, "nan"),
        ({"a": [1, {"b": float("inf")}]}, "inf"),
        ({"a": object()}, "Python `object`"),
        ({"a": {1: 2}}, "not a string"),
        ({"a": "x" * 3_000_000}, "larger than"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, args: dict[str, Any], message: str) -> None:
    decision = _guard(tmp_path).session("a").check("x", args)
    assert decision.violations[0].id == "bounds/arguments"
    assert message in decision.message


def test_deep_and_cyclic_arguments_are_refused(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    nested: Any = "x"
    for _ in range(100_000):
        nested = [nested]
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    for args in ({"a": nested}, cyclic):
        assert session.check("x", args).violations[0].id == "bounds/arguments"


def test_unusual_json_arguments_have_distinct_fingerprints(tmp_path: Path) -> None:
    session = _guard(tmp_path, LOOP.replace("max: 2", "max: 1")).session("a")
    values = [2**70, 2**71, -(2**70), "\ud800", "\\ud800", "\ud801", {"\ud800": 1}, float(2**70)]
    for value in values:
        assert session.check("x", {"a": value}).allowed, value
        assert not session.check("x", {"a": value}).allowed, value


def test_second_result_is_classified_but_not_counted(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    decision = session.check("x")
    assert session.record(decision.id, result="ok").outcome.ok
    assert not session.record(decision, error=ValueError("late")).outcome.ok


def test_decision_of_another_session_is_rejected(tmp_path: Path) -> None:
    guard = _guard(tmp_path, LOOP + "budgets: {two: {calls: 2}}\n")
    one, other = guard.session("a"), guard.session("b")
    own, foreign = one.check("x"), other.check("x")
    for report in (lambda: one.record(foreign, result="ok"), lambda: one.release(foreign)):
        with pytest.raises(ValueError, match="call `c1` is of session `b`, not of this"):
            report()
    assert one.record(own, result="ok").counted
    assert other.record(foreign, result="ok").counted


def test_run_checks_runs_and_records(tmp_path: Path) -> None:
    events: list[Event] = []
    session = _guard(tmp_path, listener=events.append).session("a")
    assert session.run("x", {"n": 1}, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        session.run("x", {"n": 1}, lambda: 1 // 0)
    with pytest.raises(CallRefused, match="same call") as refused:
        session.run("x", {"n": 1}, lambda: pytest.fail("must not run"))
    assert refused.value.decision.effect == "block"
    results = [event for event in events if isinstance(event, Completed)]
    assert [(event.ok, event.error) for event in results] == [
        (True, None),
        (False, "ZeroDivisionError: integer division or modulo by zero"),
    ]


def test_advice_is_added_to_the_results_of_its_batch(tmp_path: Path) -> None:
    rule = "{tools: [x], when: 'true', effect: advise, message: careful}"
    policy = f"policyguard: 1\nname: a\nrules: {{r: {rule}}}\n"
    session = _guard(tmp_path, policy).session("a")
    assert session.run("x", {}, lambda: "text").startswith("text\n\nA note on `x`:\n- careful")
    assert session.run("x", {}, lambda: 3) == 3
    one, two = session.check("x", batch="b"), session.check("y", batch="b")
    assert "careful" in session.record(two, result="").advice
    assert "careful" in session.record(one, result="").advice
    assert session.record(session.check("y"), result="").advice == ""


def test_tools_use_the_surrounding_session(tmp_path: Path) -> None:
    guard = _guard(tmp_path)

    @guard.tool
    def add(a: int, b: int = 2, *, where: Any = None) -> int:
        """Add."""
        return a + b

    @guard.tool
    async def async_tool(a: int) -> int:
        return a

    with pytest.raises(RuntimeError, match="outside a session"):
        add(1)
    with guard.session("a"):
        assert add(1) == 3
        with guard.session("b"):
            assert add(1, where=object()) == 3
        assert add(1) == 3
        with pytest.raises(CallRefused):
            add(1)

        async def call_twice() -> list[int]:
            return await asyncio.gather(async_tool(1), async_tool(2))

        assert asyncio.run(call_twice()) == [1, 2]
    assert add.__doc__ == "Add."


def test_session_blocks_can_end_in_any_order(tmp_path: Path) -> None:
    events: list[Event] = []
    guard = _guard(tmp_path)
    guard.on(events.append, Admitted)

    @guard.tool
    def tool() -> None:
        pass

    one, two = guard.session("1"), guard.session("2")
    for session in (one, two, one, two):
        session.__enter__()
    for session, expected in ((one, "2"), (two, "2"), (two, "1")):
        session.__exit__()
        tool()
        assert events[-1].session == expected
    one.__exit__()
    with pytest.raises(RuntimeError, match="outside a session"):
        tool()


def test_many_threads_can_enter_a_session(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session("a")
    calls: list[int] = []

    @guard.tool
    def tool(number: int) -> None:
        calls.append(number)

    def enter_and_call(number: int) -> None:
        for _ in range(50):
            with session:
                pass
        with session:
            tool(number)

    threads = [threading.Thread(target=enter_and_call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == list(range(8))


def test_cancelled_async_calls_have_been_made(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")

    async def main() -> None:
        for _ in range(2):
            task = asyncio.create_task(session.arun("x", {}, lambda: asyncio.sleep(60)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert not session.check("x").allowed
    assert session.check("y").allowed


@pytest.mark.parametrize(("mode", "allowed"), [("block", False), ("allow", True)])
def test_internal_error_is_handled_as_configured(tmp_path: Path, mode: str, allowed: bool) -> None:
    guard = _guard(tmp_path, LOOP + f"on_internal_error: {mode}\n")
    session = guard.session("a")
    del session._state.plans_by_tool  # break the state on purpose
    decision = session.check("x")
    assert decision.allowed is allowed
    assert decision.errors[0].id == "internal"
    assert "AttributeError" in decision.errors[0].error


def test_tags_are_checked_when_a_session_starts(tmp_path: Path) -> None:
    policy = (
        "policyguard: 1\nname: t\ntags: {who: string, env: {one_of: [dev, prod], default: dev},"
        " n: {type: int, default: 0}}\nrules: {r: {when: \"tags.env == 'prod'\"}}\n"
    )
    guard = _guard(tmp_path, policy)
    with pytest.raises(ValueError, match="tag `who` is required"):
        guard.session("a")
    with pytest.raises(ValueError, match="one of dev, prod") as error:
        guard.session("a", tags={"who": "x", "env": "qa", "n": True})
    assert "tag `n` must be int" in str(error.value)
    assert guard.session("a", tags={"who": "x"}).check("t").allowed
    assert not guard.session("b", tags={"who": "x", "env": "prod"}).check("t").allowed


def test_unknown_budget_or_unneeded_approval_is_an_error(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    with pytest.raises(KeyError, match="no budget `x` in this policy; it has: none"):
        session.grant("x", 1, by="me")
    with pytest.raises(ValueError, match="does not need an approval"):
        session.approve(session.check("x"), by="me")


def test_unreadable_policy_is_a_policy_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as error:
        Guard.load(tmp_path / "nowhere.yaml")
    assert error.value.diagnostics[0].code == "load/not-found"


def test_unreported_calls_free_their_slots(tmp_path: Path) -> None:
    policy = (
        "policyguard: 1\nname: a\nbudgets: {one: {concurrent: 1, tools: [x]}}\n"
        "bounds: {unreported: 1m, in_flight: 3}\n"
    )
    now = [10**18]
    session = _guard(tmp_path, policy, clock=lambda: now[0]).session("a")
    assert session.check("x").allowed
    assert not session.check("x").allowed
    for number in range(5):
        assert session.check("y", {"n": number}).allowed
    assert not session.check("x").allowed, "it may still be running"
    now[0] += 61 * 10**9
    assert session.check("y", {"n": 9}).allowed
    assert session.check("x").allowed


@pytest.mark.parametrize("read_only", [True, False])
def test_hints_apply_to_one_call_only(tmp_path: Path, read_only: bool) -> None:
    condition = "!(has(call.hints.read_only) && call.hints.read_only)"
    policy = f"policyguard: 1\nname: hints\nclassify: {{state_changing: '{condition}'}}\n"
    guard = _guard(tmp_path, policy)
    events: list[Event] = []
    guard.on(events.append, Admitted)
    session = guard.session("s")
    for hints in ({"read_only": read_only}, {"read_only": not read_only}, None):
        session.record(session.check("t", {}, hints=hints), result="x")
    assert [getattr(event, "state_changing", None) for event in events] == [
        not read_only,
        read_only,
        True,
    ]
