"""Own classes that take some calls of an inherited class."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.lint.linter import lint_paths

FORCED = "classify: {classes: [{class: forced, when: has(call.args.force)}]}"
NAMED = "classify: {classes: [{class: forced, tools: [delete_file], when: has(call.args.force)}]}"
OTHER = "classify: {classes: [{class: forced, tools: [git_push], when: has(call.args.force)}]}"
LIMIT = "limits: {classes: {delete: {repeat: {max: 1}}}}"
BOTH = "limits: {classes: {delete: {repeat: {max: 1}}, forced: {repeat: {max: 1}}}}"
CYCLE = "limits: {classes: {delete: {repeat: {max: 1}}, forced: {cycle: {max: 1}}}}"
RULE = "rules: {no: {tools: ['*'], when: call.class == 'delete'}}"
RULE_FOR_BOTH = "rules: {no: {tools: ['*'], when: \"call.class in ['delete', 'forced']\"}}"
PARAM = "params: {c: delete}\n" + RULE.replace("'delete'", "params.c")
CALLS = "budgets: {calls: {calls: 2, per: [session, call.class], message: m}}"


def rule(test: str) -> str:
    return RULE.replace("call.class == 'delete'", f'"{test}"')


@pytest.mark.parametrize(
    ("own", "use", "lost"),
    [
        (FORCED, LIMIT, "limits.classes.delete"),
        (NAMED, LIMIT, "limits.classes.delete"),
        (NAMED, CYCLE, "limits.classes.delete"),
        (NAMED, RULE, "call.class` in `rules.no.when"),
        (NAMED, "learn: {ban: class}", "learn: {ban: class}"),
        (NAMED, "learn: {ban: target, except: [delete]}", "learn: {except: [delete]}"),
        (NAMED, BOTH, ""),
        (NAMED, RULE_FOR_BOTH, ""),
        (NAMED, PARAM, "call.class` in `rules.no.when"),
        (NAMED, CALLS, "call.class` in `budgets.calls.per"),
        (NAMED, rule("call.class.startsWith('del')"), "call.class` in `rules.no.when"),
        (NAMED, rule("call.class.endsWith('ete')"), "call.class` in `rules.no.when"),
        (NAMED, rule("call.class.contains('let')"), "call.class` in `rules.no.when"),
        (NAMED, rule("call.class.matches('^d')"), "call.class` in `rules.no.when"),
        (NAMED, rule("size(call.class) == 6"), "call.class` in `rules.no.when"),
        (NAMED, rule("call.class.startsWith('f')"), ""),
        (NAMED, rule("call.class.matches('shell|search')"), ""),
        (NAMED, "", ""),
        (FORCED, "", ""),
        (OTHER, LIMIT, ""),
    ],
)
def test_what_a_conditional_class_takes_away(tmp_path: Path, own: str, use: str, lost: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policyguard: 1\nname: own\nextends: [core]\n{own}\n{use}\n")
    found = lint_paths([policy], select=["lint/shadowed-class"]).diagnostics
    assert len(found) == bool(lost)
    assert not lost or (f"lost: `{lost}`" in found[0].message and "`delete`" in found[0].message)


@pytest.mark.parametrize(
    ("second", "is_shadowed"),
    [
        ("tools: [get_user]", True),
        ("tools: [user_get]", False),
        ("{words: [get], leading: true}", True),
        ("words: [get]", False),
    ],
)
def test_an_entry_for_leading_words_matches_names_that_begin_so(
    tmp_path: Path, second: str, is_shadowed: bool
) -> None:
    second = second.strip("{}")
    classes = f"[{{class: a, words: [get], leading: true}}, {{class: b, {second}}}]"
    rules = "rules: {no: {tools: ['*'], when: call.class == 'b'}}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policyguard: 1\nname: own\nclassify: {{classes: {classes}}}\n{rules}\n")
    found = lint_paths([policy], select=["lint/shadowed-class"]).diagnostics
    assert bool(found) == is_shadowed
