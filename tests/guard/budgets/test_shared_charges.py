"""What calls charge to shared budgets: beyond a limit, after a resumption, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.budgets.test_shared_budgets import Workspace, count_allowed, violation_text


@pytest.mark.parametrize("rule", ["", "rules: {hm: {tools: [tool], effect: advise, message: m}}"])
def test_advised_calls_hold_slots_beyond_the_limit(tmp_path: Path, rule: str) -> None:
    workspace = Workspace(
        tmp_path, f"budgets: {{b: {{concurrent: 2, per: project, effect: advise}}}}\n{rule}"
    )
    one, two = workspace.session("one"), workspace.session("two")
    decisions = [one.check("tool", {"n": number}) for number in range(4)]
    assert violation_text(two.preview("tool", {})) == (
        "budget `b` is used up: 5 of 2 calls at once per project"
    )
    for decision in decisions:
        one.record(decision, result="")
    assert two.preview("other", {}).effect == "allow"


def test_costs_of_a_resumed_session_are_shared(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "budgets: {b: {cost: 1, per: project}}")
    with workspace.guard() as guard:
        one = guard.session("one", project="p")
        one.record(one.check("tool", {}), result="", cost=0.2)
    resumed, two = workspace.session("one"), workspace.session("two")
    resumed.record(resumed.check("tool", {}), result="", cost=0.9)
    assert violation_text(two.check("tool", {})) == (
        "budget `b` is used up: 1.1 of 1 cost per project"
    )


@pytest.mark.parametrize("first", ["calls: 20", "concurrent: 20"])
def test_call_that_the_second_budget_refuses_takes_nothing_from_the_first(
    tmp_path: Path, first: str
) -> None:
    workspace = Workspace(
        tmp_path,
        f"budgets:\n  all: {{{first}, per: project}}\n"
        "  few: {calls: 8, per: user, tools: [few]}\n",
    )
    one, two = workspace.session("one", user="u"), workspace.session("two", user="u")
    assert count_allowed(one, "few", max_calls=2) == 2
    assert count_allowed(two, "few") == 6
    assert one.check("few", {}).violations[0].id == "budgets/few"
    assert count_allowed(one, "many") + count_allowed(two, "many") == 12
