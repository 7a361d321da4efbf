"""Refusals of the packs say what is the matter, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.compiler import compile_policy
from policyguard.model.effect import Effect
from policyguard.model.policy import Case, Rule

PACKS = sorted(
    file.parent.name
    for file in (Path(__file__).parents[2] / "policies" / "packs").glob("*/policy.yaml")
)


def _silent_parts(rule: Rule) -> Iterator[str]:
    """Yield the parts of a rule that refuse without one of the two halves."""
    parts: list[tuple[str, Effect, Rule | Case]] = [
        (f"{rule.id}/{number}", case.effect, case) for number, case in enumerate(rule.cases, 1)
    ]
    parts.append((rule.id, rule.otherwise if rule.cases else rule.effect, rule))
    for name, effect, part in parts:
        says_both = (part.message or rule.message) and (part.instead or rule.instead)
        if effect >= Effect.ADVISE and not says_both:
            yield name


@pytest.mark.parametrize("pack", ["core", *PACKS])
def test_each_rule_says_why_and_what_to_do(pack: str) -> None:
    if pack == "data-analyst":
        pytest.importorskip("sqlglot")
    policy = compile_policy(pack).policy
    assert [name for rule in policy.rules for name in _silent_parts(rule)] == []


def test_a_case_may_say_it_for_itself() -> None:
    half = Case(effect=Effect.ASK, on_error=Effect.ASK, message="a")
    rule = Rule(id="a", effect=Effect.BLOCK, on_error=Effect.BLOCK, cases=(half,), instead="b")
    assert list(_silent_parts(rule)) == []
    assert list(_silent_parts(Rule(id="a", effect=Effect.ASK, on_error=Effect.ASK))) == ["a"]
    silent = Rule(id="a", effect=Effect.BLOCK, on_error=Effect.BLOCK, cases=(half,), message="b")
    assert list(_silent_parts(silent)) == ["a/1"]
