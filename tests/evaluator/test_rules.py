"""Prefiltering of the rules of a plan: no rule that could fire is skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.check.examples import prepare_example
from policyguard.model.entry import Example

POLICY = """
policyguard: 1
name: prefilter
params: {max_n: 10}
lists: {known: [alpha, beta]}
tags: {stage: {type: string, default: test}}
classify:
  classes:
    - {class: far, when: has(call.args.host) && call.class == ''}
rules:
  any: {tools: [always], effect: advise}
  except: {tools: [always], unless: call.args.n > params.max_n}
  high: {when: has(call.args.n) && call.args.n > params.max_n}
  lost: {when: call.args.absent == 1 && call.tool == 'lost'}
  unknown: {when: has(call.args.name) && !(call.args.name in lists.known), unless: call.args.n == 1}
  far: {when: call.class == 'far', mode: observe}
  stage: {when: tags.stage == 'live' || call.agent == 'deputy'}
  dear: {when: session.cost * 2.0 > 9.0}
  late: {when: now > timestamp('2026-01-01T00:00:00Z')}
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> CompiledPolicy:
    file = tmp_path_factory.mktemp("rules") / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    return compile_policy(Path(file), environ={})


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ({}, ["lost"]),
        ({"args": {"n": 11}}, ["high", "lost"]),
        ({"args": {"n": "eleven"}}, ["high", "lost"]),
        ({"args": {"absent": 2, "n": 1}}, []),
        ({"tool": "always", "args": {"absent": 2, "n": 10**3}}, ["any", "except", "high"]),
        ({"args": {"absent": 2, "name": "alpha"}}, []),
        ({"args": {"absent": 2}, "session": {"cost": 1}}, []),
        ({"args": {"absent": 2}, "session": {"cost": 5}}, ["dear"]),
        ({"args": {"absent": 2, "name": "gamma", "n": 1}}, ["unknown"]),
        ({"args": {"absent": 2, "host": "a.example"}}, ["far"]),
        ({"args": {"absent": 2}, "tags": {"stage": "live"}}, ["stage"]),
        ({"args": {"absent": 2}, "agent": "deputy"}, ["stage"]),
        ({"args": {"absent": 2}, "at": "2026-06-01T00:00:00Z"}, ["late"]),
        ({"args": {"absent": 2}, "at": None}, ["late"]),
    ],
)
def test_prefilter_keeps_every_rule_that_can_fire(
    policy: CompiledPolicy, example: dict[str, Any], expected: list[str]
) -> None:
    fields = {"tool": "some", "args": {}, "at": "2025-06-01T00:00:00Z", **example}
    plan, attempt = prepare_example(policy.policy, Example(**fields), policy.evaluator)
    candidates = plan.rules.possible_matches(attempt)
    assert [rule.id for rule in candidates] == [f"rules/{name}" for name in expected]
    for rule in plan.rules:
        if rule not in candidates:
            assert not rule.evaluate(attempt)
    assert {error.entry for error in attempt.errors} <= {rule.id for rule in candidates}


def test_tools_with_the_same_rules_share_their_prefilter(policy: CompiledPolicy) -> None:
    first, second, other = (
        policy.evaluator.plan(tool, "", "", (), "").rules for tool in ("a", "b", "always")
    )
    assert first is second
    assert first is not other


def test_a_released_call_is_counted_no_more(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\nrules: {often: {tools: [a], when: session.count('a') >= 2}}\n"
    )
    session = Guard.load(file).session("s")
    decisions = [session.check("a", {}) for _ in range(3)]
    assert [bool(decision) for decision in decisions] == [True, True, False]
    session.release(decisions[0])
    assert [session.check("a", {}).allowed for _ in range(2)] == [True, False]


def test_counts_of_the_least_recently_called_tools_go_first(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\nbounds: {plans: 2}\n"
        "rules: {often: {tools: [a], when: session.count('a') >= 2}}\n"
    )
    session = Guard.load(file).session("s")
    for tool in ("a", "b", "a", "c"):
        assert session.check(tool, {}).allowed
    assert not session.check("a", {}).allowed
