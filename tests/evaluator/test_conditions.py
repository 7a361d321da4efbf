"""Conditions of rules: what each answer and error leads to, and examples of cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.compiler import compile_policy
from policyguard.compiler.check.examples import prepare_example
from policyguard.lint import lint_paths
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.entry import Example

POLICY = """
policyguard: 1
name: conditions
rules:
  exempt: {tools: [send], unless: call.args.known}
  met: {tools: [post], when: call.args.wide}
"""


@pytest.mark.parametrize(
    ("tool", "args", "effect", "error"),
    [
        ("send", {"known": True}, "allow", ""),
        ("send", {"known": False}, "block", ""),
        ("send", {"known": "yes"}, "block", "`unless` is not a bool"),
        ("post", {"wide": True}, "block", ""),
        ("post", {"wide": False}, "allow", ""),
        ("post", {"wide": "no"}, "block", "`when` is not a bool"),
    ],
)
def test_an_answer_that_is_no_bool_is_an_error(
    tmp_path: Path, tool: str, args: dict[str, object], effect: str, error: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    with Guard.load(file, journal=None) as guard:
        decision = guard.session("s").check(tool, args)
    assert decision.effect.name.lower() == effect
    assert [one.error for one in decision.errors] == [error] * bool(error)


NO_A, NO_B = "no such key: `a`", "no such key: `b`"
NOT_WHEN, NOT_UNLESS = "`when` is not a bool", "`unless` is not a bool"
BOTH = "{when: call.args.a, unless: call.args.b}"


@pytest.mark.parametrize(
    ("rule", "args", "effect", "error"),
    [
        ("{hosts: [a.example]}", {"url": "https://a.example/"}, "block", ""),
        ("{hosts: [a.example]}", {"url": "https://b.example/"}, "", ""),
        ("{hosts: [a.example]}", {}, "", ""),
        ("{when: call.args.a, effect: ask}", {"a": True}, "ask", ""),
        ("{when: call.args.a}", {"a": False}, "", ""),
        ("{when: call.args.a}", {"a": 1}, "block", NOT_WHEN),
        ("{when: call.args.a}", {}, "block", NO_A),
        ("{when: call.args.a, effect: halt, on_error: advise}", {}, "advise", NO_A),
        ("{when: call.args.a, on_error: allow}", {}, "", NO_A),
        ("{unless: call.args.b}", {"b": True}, "", ""),
        ("{unless: call.args.b}", {"b": False}, "block", ""),
        ("{unless: call.args.b}", {"b": 1}, "block", NOT_UNLESS),
        ("{unless: call.args.b}", {}, "block", NO_B),
        (BOTH, {"a": True, "b": False}, "block", ""),
        (BOTH, {"a": True, "b": True}, "", ""),
        (BOTH, {"a": False}, "", ""),
        (BOTH, {"a": True}, "block", NO_B),
        (BOTH, {"a": True, "b": 1}, "block", NOT_UNLESS),
        (BOTH, {"b": True}, "", ""),
        (BOTH, {"b": False}, "block", NO_A),
        (BOTH, {"b": 1}, "block", NO_A),
        (BOTH, {}, "block", NO_A),
        (BOTH, {"a": 1}, "block", NOT_WHEN),
    ],
)
def test_a_rule_reports_the_first_error_unless_an_answer_rules_it_out(
    tmp_path: Path, rule: str, args: dict[str, object], effect: str, error: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: one\nrules: {{one: {rule}}}\n", "utf-8")
    policy = compile_policy(file, environ={})
    example = Example(tool="send", args=args)
    plan, attempt = prepare_example(policy.policy, example, policy.evaluator)
    (compiled,) = plan.rules
    remark = f" (the rule failed: {error})" if error else ""
    verb = "applies to" if effect in ("ask", "advise") else "forbids"
    text = f"rule `one` {verb} this call{remark}"
    violation = Violation("rules/one", Effect(effect or "block"), "rule", text, quotes=bool(error))
    assert compiled.evaluate(attempt) == ((violation,) if effect else ())
    assert [one.error for one in attempt.errors] == [error] * bool(error)


@pytest.mark.parametrize(
    ("args", "violations", "errors"),
    [
        ({"a": True, "b": False}, ["rules/one/1"], []),
        ({"a": False, "b": False}, [], []),
        ({"a": True, "b": True}, [], []),
        ({"b": False}, ["rules/one/1"], [NO_A]),
    ],
)
def test_cases_are_read_if_their_rule_may_match(
    tmp_path: Path, args: dict[str, object], violations: list[str], errors: list[str]
) -> None:
    file = tmp_path / "policy.yaml"
    rule = BOTH.replace("}", ", cases: [{effect: ask}]}")
    file.write_text(f"policyguard: 1\nname: one\nrules: {{one: {rule}}}\n", "utf-8")
    with Guard.load(file, journal=None) as guard:
        decision = guard.session("s").check("send", args)
    assert [one.id for one in decision.violations] == violations
    assert [one.error for one in decision.errors] == errors


CASES = """
policyguard: 1
name: cases
rules:
  transfers:
    tools: [transfer]
    servers: [bank]
    cases:
      - {when: call.args.cents > 100, effect: block, examples: {match: [EXAMPLE]}}
    otherwise: allow
"""


@pytest.mark.parametrize(
    ("example", "fails"),
    [
        ("{call: {mcp__bank__transfer: {cents: 101}}}", False),
        ("{call: {mcp__bank__transfer: {cents: 100}}}", True),
        ("{call: {mcp__shop__transfer: {cents: 101}}}", True),
    ],
)
def test_an_example_of_a_case_must_be_a_call_of_its_rule(
    tmp_path: Path, example: str, fails: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(CASES.replace("EXAMPLE", example), "utf-8")
    found = [one.code for one in lint_paths([file]).diagnostics if one.code.startswith("example/")]
    assert found == ["example/no-match"] * fails
