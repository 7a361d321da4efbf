"""What is kept of one call's answer to `state_changing` never misleads about another call."""

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
name: changing
classify:
  classes: [{class: shell, tools: [sh]}, {class: look, tools: [read]}]
  state_changing: "CONDITION"
"""


def one_of(*values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(values)


calls = st.tuples(
    st.sampled_from(["sh", "read", "write"]),
    one_of({}, {"command": "ls"}, {"command": "rm a"}, {"n": 1}, {"n": 2, "command": "ls"}),
    one_of({}, {}, {"read_only": True}, {"read_only": False}),
    st.sampled_from(["one", "two"]),
)


def asked(attempt: Attempt) -> bool:
    """What `state_changing` says of a call, with nothing known of any other."""
    changing = attempt.bound_plan.plan.state_changing
    assert not isinstance(changing, bool)
    try:
        return (
            changing(Activation(attempt, attempt.session.activation_context, attempt.at))
            is not False
        )
    except ExpressionError:
        return True


@pytest.mark.parametrize("condition", CONDITIONS)
@given(made=st.lists(calls, min_size=2, max_size=8))
def test_each_call_is_answered_as_if_it_were_the_first(
    condition: str, made: list[tuple[str, dict[str, Any], dict[str, bool], str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(POLICY.replace("CONDITION", condition))
        guard = Guard(compile_policy(file))
    for tool, args, hints, agent in made:
        session = guard.session(agent, agent=agent)
        decision = session.check(tool, args, hints=hints)
        attempt = session._state.in_flight[decision.id]
        expected = asked(attempt)
        session.record(decision, result="done")
        assert attempt.state_changing is expected


def test_what_is_found_without_a_look_at_the_command_is_asked_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("CONDITION", CONDITIONS[0]))
    session = Guard(compile_policy(file)).session("s")
    steady = {}
    for tool in ("sh", "read", "write"):
        decision = session.check(tool, {"command": "ls"})
        plan = session._state.in_flight[decision.id].bound_plan.plan
        session.record(decision, result="done")
        steady[tool] = plan.cached_answer
    assert steady == {"sh": None, "read": False, "write": True}
