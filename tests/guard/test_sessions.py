"""Sessions, running tools, and what goes wrong."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard import CallRefused, Effect, Guard, PolicyError
from policyguard.model.event import Admitted, Completed, Event, Refused, Released, Started

LOOP = "policyguard: 1\nname: loop\nlimits: {default: {repeat: {max: 2, same: call}}}\n"


def _guard(tmp_path: Path, text: str = LOOP, **given: Any) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return Guard.load(file, **given)


def test_the_same_id_gives_the_same_session(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    one = guard.session("a")
    assert guard.session("a") is one
    one.close()
    assert guard.session("a") is not one


def test_a_closed_session_refuses(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    session.close()
    session.close()
    decision = session.check("x")
    assert (decision.effect, decision.violations[0].id) == ("block", "session/closed")


def test_a_decision_is_true_if_the_call_is_allowed(tmp_path: Path) -> None:
    rules = ", ".join(
        f"{effect}: {{tools: [{effect}], effect: {effect}}}"
        for effect in ("advise", "ask", "block", "halt")
    )
    otherwise = "lenient: {tools: [lenient], effect: ask, approval: {otherwise: allow}}"
    guard = _guard(tmp_path, f"policyguard: 1\nname: p\nrules: {{{rules}, {otherwise}}}\n")
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


def test_decisions_can_stand_in_a_set(tmp_path: Path) -> None:
    guard = _guard(tmp_path, LOOP + "budgets: {few: {calls: 2}}\n")
    session = guard.session("a")
    decisions = [session.check("x", {"n": number}) for number in range(3)]
    assert decisions[2].left
    assert len({*decisions, *decisions}) == 3
    assert hash(decisions[2]) == hash(msgspec.structs.replace(decisions[2]))


def test_a_session_is_calm_again_when_what_was_refused_is_made_up_for(tmp_path: Path) -> None:
    steps = (
        "policyguard: 1\nname: s\nlimits: {default: {repeat: {max: 1, same: call, halt_at: 9}}}\n"
    )
    session = _guard(tmp_path, steps).session("a")
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


def test_a_session_whose_parent_is_halted_is_halted_though_it_is_calm(tmp_path: Path) -> None:
    halting = LOOP + "rules: {stop: {tools: [stop], effect: halt}}\n"
    guard = _guard(tmp_path, halting)
    child = guard.session("child", parent=guard.session("parent"))
    child.record(child.check("x"), result="1")
    assert child._state.on_fast_path
    assert guard.session("parent").check("stop").effect == "halt"
    assert child.check("y").effect == "halt"


def test_a_sub_agent_is_halted_no_longer_than_its_parent(tmp_path: Path) -> None:
    halting = LOOP + "rules: {stop: {tools: [stop], effect: halt}}\n"
    guard = _guard(tmp_path, halting)
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


def test_the_least_recently_used_session_goes_first(tmp_path: Path) -> None:
    guard = _guard(tmp_path, LOOP + "bounds: {sessions: 2}\n")
    first, second = guard.session("1"), guard.session("2")
    first.check("x")
    guard.session("3")
    assert second.closed
    assert not first.closed


def test_a_decision_answers_in_words_and_for_programs(tmp_path: Path) -> None:
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


def test_effects_are_ordered_by_strength_and_equal_to_their_words() -> None:
    assert sorted(Effect) == ["allow", "advise", "ask", "block", "halt"]
    assert Effect.ALLOW < "advise" < Effect.ASK
    assert max(Effect.BLOCK, Effect.HALT, Effect.ADVISE) is Effect.HALT


def test_every_event_is_told_in_order(tmp_path: Path) -> None:
    events: list[Event] = []
    session = _guard(tmp_path, listener=events.append).session("a", agent="b")
    first = session.check("x")
    session.record(first, result={"b": 1}, cost=0.5)
    session.release(session.check("x"))
    session.check("x")
    session.check("x")
    kinds = [type(event) for event in events]
    assert kinds == [Started, Admitted, Completed, Admitted, Released, Admitted, Refused]
    assert events[2].text == '{"b":1}'


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"a": float("nan")}, "nan"),
        ({"a": [1, {"b": float("inf")}]}, "inf"),
        ({"a": object()}, "Python `object`"),
        ({"a": {1: 2}}, "not a string"),
        ({"a": "x" * 3_000_000}, "larger than"),
    ],
)
def test_arguments_that_cannot_be_judged_are_refused(
    tmp_path: Path, args: dict[str, Any], says: str
) -> None:
    decision = _guard(tmp_path).session("a").check("x", args)
    assert decision.violations[0].id == "bounds/arguments"
    assert says in decision.message


def test_deep_and_cyclic_arguments_are_refused(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    for args in ({"a": deep}, cyclic):
        assert session.check("x", args).violations[0].id == "bounds/arguments"


def test_odd_arguments_that_are_json_are_told_apart(tmp_path: Path) -> None:
    session = _guard(tmp_path, LOOP.replace("max: 2", "max: 1")).session("a")
    odd = [2**70, 2**71, -(2**70), "\ud800", "\\ud800", "\ud801", {"\ud800": 1}, float(2**70)]
    for value in odd:
        assert session.check("x", {"a": value}).allowed, value
        assert not session.check("x", {"a": value}).allowed, value


def test_a_late_or_unknown_result_is_judged_and_not_counted(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    decision = session.check("x")
    assert session.record(decision.id, result="ok").outcome.ok
    assert not session.record(decision, error=ValueError("late")).outcome.ok
    assert session.record("c99", result="?").outcome.ok


def test_a_decision_of_another_session_is_no_call_of_this_one(tmp_path: Path) -> None:
    guard = _guard(tmp_path, LOOP + "budgets: {two: {calls: 2}}\n")
    one, other = guard.session("a"), guard.session("b")
    mine, theirs = one.check("x"), other.check("x")
    for report in (lambda: one.record(theirs, result="ok"), lambda: one.release(theirs)):
        with pytest.raises(ValueError, match="call `c1` is one of session `b`, not of this"):
            report()
    assert one.record(mine, result="ok").counted
    assert other.record(theirs, result="ok").counted


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
    text = f"policyguard: 1\nname: a\nrules: {{r: {rule}}}\n"
    session = _guard(tmp_path, text).session("a")
    assert session.run("x", {}, lambda: "text").startswith("text\n\nA note on `x`:\n- careful")
    assert session.run("x", {}, lambda: 3) == 3
    one, two = session.check("x", batch="b"), session.check("y", batch="b")
    assert "careful" in session.record(two, result="").advice
    assert "careful" in session.record(one, result="").advice
    assert session.record(session.check("y"), result="").advice == ""


def test_tools_belong_to_the_surrounding_session(tmp_path: Path) -> None:
    guard = _guard(tmp_path)

    @guard.tool
    def add(a: int, b: int = 2, *, where: Any = None) -> int:
        """Add."""
        return a + b

    @guard.tool
    async def later(a: int) -> int:
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

        async def both() -> list[int]:
            return await asyncio.gather(later(1), later(2))

        assert asyncio.run(both()) == [1, 2]
    assert add.__doc__ == "Add."


def test_blocks_of_sessions_may_end_in_any_order(tmp_path: Path) -> None:
    told: list[Event] = []
    guard = _guard(tmp_path)
    guard.on(told.append, Admitted)

    @guard.tool
    def note() -> None:
        pass

    one, two = guard.session("1"), guard.session("2")
    for session in (one, two, one, two):
        session.__enter__()
    for session, expected in ((one, "2"), (two, "2"), (two, "1")):
        session.__exit__()
        note()
        assert told[-1].session == expected
    one.__exit__()
    with pytest.raises(RuntimeError, match="outside a session"):
        note()


def test_a_session_may_be_entered_by_many_threads(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session("a")
    calls: list[int] = []

    @guard.tool
    def note(n: int) -> None:
        calls.append(n)

    def work(n: int) -> None:
        for _ in range(50):
            with session:
                pass
        with session:
            note(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == list(range(8))


def test_a_cancelled_async_call_is_released(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")

    async def main() -> None:
        for _ in range(5):
            task = asyncio.create_task(session.arun("x", {}, lambda: asyncio.sleep(60)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert session.check("x").allowed


@pytest.mark.parametrize(("mode", "allowed"), [("block", False), ("allow", True)])
def test_an_internal_error_is_answered_as_the_policy_says(
    tmp_path: Path, mode: str, allowed: bool
) -> None:
    guard = _guard(tmp_path, LOOP + f"on_internal_error: {mode}\n")
    session = guard.session("a")
    del session._state.plans_by_tool  # a state that no code of ours leaves behind
    decision = session.check("x")
    assert decision.allowed is allowed
    assert decision.errors[0].id == "internal"
    assert "AttributeError" in decision.errors[0].error


def test_tags_are_checked_when_a_session_starts(tmp_path: Path) -> None:
    text = (
        "policyguard: 1\nname: t\ntags: {who: string, env: {one_of: [dev, prod], default: dev},"
        " n: {type: int, default: 0}}\nrules: {r: {when: \"tags.env == 'prod'\"}}\n"
    )
    guard = _guard(tmp_path, text)
    with pytest.raises(ValueError, match="tag `who` is required"):
        guard.session("a")
    with pytest.raises(ValueError, match="one of dev, prod") as wrong:
        guard.session("a", tags={"who": "x", "env": "qa", "n": True})
    assert "tag `n` must be int" in str(wrong.value)
    assert guard.session("a", tags={"who": "x"}).check("t").allowed
    assert not guard.session("b", tags={"who": "x", "env": "prod"}).check("t").allowed


def test_an_unknown_budget_or_an_unasked_call_is_an_error(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("a")
    with pytest.raises(KeyError, match="no budget `x`"):
        session.grant("x", 1, by="me")
    with pytest.raises(ValueError, match="not one that this session was asked about"):
        session.approve(session.check("x"), by="me")


def test_a_policy_that_cannot_be_read_is_a_policy_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as error:
        Guard.load(tmp_path / "nowhere.yaml")
    assert error.value.diagnostics[0].code == "load/not-found"


def test_calls_that_nobody_reports_give_their_place_back(tmp_path: Path) -> None:
    text = (
        "policyguard: 1\nname: a\nbudgets: {one: {at_once: 1, tools: [x]}}\n"
        "bounds: {unreported: 1m, in_flight: 3}\n"
    )
    now = [10**18]
    session = _guard(tmp_path, text, clock=lambda: now[0]).session("a")
    assert session.check("x").allowed
    assert not session.check("x").allowed
    for place in range(5):
        assert session.check("y", {"n": place}).allowed
    assert not session.check("x").allowed, "it may still be running"
    now[0] += 61 * 10**9
    assert session.check("y", {"n": 9}).allowed
    assert session.check("x").allowed


@pytest.mark.parametrize("first", [True, False])
def test_a_hint_about_one_call_says_nothing_of_the_next(tmp_path: Path, first: bool) -> None:
    hint = "!(has(call.hints.read_only) && call.hints.read_only)"
    text = f"policyguard: 1\nname: hints\nclassify: {{state_changing: '{hint}'}}\n"
    guard = _guard(tmp_path, text)
    told: list[Event] = []
    guard.on(told.append, Admitted)
    session = guard.session("s")
    for hints in ({"read_only": first}, {"read_only": not first}, None):
        session.record(session.check("t", {}, hints=hints), result="x")
    assert [getattr(event, "state_changing", None) for event in told] == [not first, first, True]
