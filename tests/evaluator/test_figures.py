"""What violations say was used, of what limit."""

from __future__ import annotations

from pathlib import Path

from policyguard import Guard

POLICY = """
policyguard: 1
name: figures
limits: {tools: {poll: {polling: {unchanged: 3}}}}
budgets: {paid: {tools: [pay], sum: call.args.amount, max: 5}}
"""


def test_a_poll_is_used_as_often_as_its_result_has_stayed_the_same(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    session = Guard.load(file).session("s")
    for _ in range(4):
        session.record(session.check("poll"), result="same")
    (violation,) = session.check("poll").violations
    assert (violation.used, violation.limit) == (3, 3)


def test_of_a_budget_that_cannot_be_computed_nothing_is_known(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    (violation,) = Guard.load(file).session("s").check("pay", {"amount": "much"}).violations
    assert (violation.used, violation.limit) == (None, 0)
