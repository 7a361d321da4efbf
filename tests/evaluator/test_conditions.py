"""Conditions whose answer is no bool, and examples of cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.lint import lint_paths

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
