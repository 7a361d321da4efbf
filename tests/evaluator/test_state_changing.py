"""The cached answer of `state_changing` for one call is never wrong for another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.compiler import compile_policy
from policyguard.evaluator.activation import Activation
from policyguard.evaluator.attempt import Attempt
from policyguard.model.errors import ExpressionError

CONDITIONS = (
    "!(has(call.hints.read_only) && call.hints.read_only)"
    " && (call.class == 'shell' ? !call.command.startsWith('ls') : call.class != 'look')",
    "call.class == 'look' ? call.command != '' : call.tool.startsWith('w')",
    "call.command.contains('rm') || call.class == 'look'",
    "call.class == 'look' || call.command.contains('rm')",
    "call.hints.read_only || call.class == 'look'",
    "call.agent == 'two' || call.args.n > 1",
    "size(call.args) == 1",
    "call.session == 'one' || has(call.args.n)",
)
POLICY = """
policyguard: 1
name: state-changing
classify:
  classes: [{class: shell, tools: [sh]}, {class: look, tools: [read]}]
  state_changing: "CONDITION"
"""


def sample(*values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(values)


calls = st.tuples(
    st.sampled_from(["sh", "read", "write"]),
    sample({}, {"command": "ls"}, {"command": "rm a"}, {"n": 1}, {"n": 2, "command": "ls"}),
    sample({}, {}, {"read_only": True}, {"read_only": False}),
    st.sampled_from(["one", "two"]),
)


def evaluate_state_changing(attempt: Attempt) -> bool:
    """Evaluate `state_changing` for a call without any cache."""
    condition = attempt.bound_plan.plan.state_changing
    assert not isinstance(condition, bool)
    try:
        return (
            condition(Activation(attempt, attempt.session.activation_context, attempt.at))
            is not False
        )
    except ExpressionError:
        return True


@pytest.mark.parametrize("condition", CONDITIONS)
@given(attempts=st.lists(calls, min_size=2, max_size=8))
def test_answer_does_not_depend_on_earlier_calls(
    condition: str, attempts: list[tuple[str, dict[str, Any], dict[str, bool], str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(POLICY.replace("CONDITION", condition))
        guard = Guard(compile_policy(file))
    for tool, args, hints, agent in attempts:
        session = guard.session(agent, agent=agent)
        decision = session.check(tool, args, hints=hints)
        attempt = session._state.in_flight[decision.id]
        expected = evaluate_state_changing(attempt)
        session.record(decision, result="done")
        assert attempt.bound_plan.plan.is_state_changing(attempt) is expected


@pytest.mark.parametrize(
    ("condition", "cached"),
    [
        (CONDITIONS[0], {"sh": None, "read": False, "write": True}),
        ("call.tool in lists.writers && params.on", {"sh": False, "read": False, "write": True}),
        ("call.agent == 'two'", {"sh": False, "read": False, "write": False}),
        ("call.session == 's'", {"sh": None, "read": None, "write": None}),
        ("session.calls == 0", {"sh": None, "read": None, "write": None}),
        ("size(call.args) == 1", {"sh": None, "read": None, "write": None}),
    ],
)
def test_answers_that_all_calls_of_a_kind_share_are_cached(
    tmp_path: Path, condition: str, cached: dict[str, bool | None]
) -> None:
    file = tmp_path / "policy.yaml"
    values = "lists: {writers: [write]}\nparams: {on: true}\n"
    file.write_text(POLICY.replace("CONDITION", condition) + values)
    session = Guard(compile_policy(file)).session("s")
    cached_answers = {}
    for tool in ("sh", "read", "write"):
        decision = session.check(tool, {"command": "ls"})
        plan = session._state.in_flight[decision.id].bound_plan.plan
        session.record(decision, result="done")
        cached_answers[tool] = plan.cached_answer
    assert cached_answers == cached


def test_a_change_is_noted_where_no_event_is_written(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\n"
        "classify: {classes: [{class: edit, tools: [edit]}], state_changing: [edit]}\n"
        "limits: {tools: {read: {repeat: {max: 1, same: call_and_result}}}}\n"
    )
    session = Guard.load(file).session("s")
    for _ in range(3):
        read = session.check("read")
        assert read.allowed
        session.record(read, result="same")
        assert not session.preview("read").allowed
        session.record(session.check("edit"), result="done")


def test_answer_is_that_of_the_moment_of_the_call(tmp_path: Path) -> None:
    """What the condition reads may be different when the result is there."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CONDITION", "session.calls == 0"))
    session = Guard(compile_policy(file)).session("s")
    for expected in (True, False):
        decision = session.check("write", {"n": 1})
        attempt = session._state.in_flight[decision.id]
        session.record(decision, result="done")
        assert attempt.bound_plan.plan.is_state_changing(attempt) is expected
