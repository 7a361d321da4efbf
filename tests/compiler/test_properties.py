"""Every policy file gives diagnostics, never an exception."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.compiler.pipeline import FrontendResult
from policyguard.engines.yaml_tree import to_plain
from policyguard.model.policy import Policy
from policyguard.report.findings.diagnostics import render_json, render_text
from tests.compiler.setup import read_text
from tests.examples import examples

CASES = Path(__file__).parents[1] / "cases" / "lint"
POLICIES = [path.read_text("utf-8") for path in sorted(CASES.glob("*/*.yaml"))]
TOKEN = re.compile(r"[A-Za-z_$@.-]+|[0-9.]+[a-zA-Z]*|[^\w\s]|\s+")
TOKENS = sorted({token for text in POLICIES for token in TOKEN.findall(text)})
VALUES = ["null", "true", "1e3", "-1", "0", "''", "[]", "{}", "[1]", "{a: b}", "$x", "none", "60"]
VALUES += ['"5"', "yes", "017", "5m", "2k", "\u202e", "\x00", "é", "*a", "&a", "!t", "|", ">"]


def check_result(result: FrontendResult) -> None:
    """Assert what holds for every policy, however broken."""
    errors = [found for found in result.diagnostics if found.severity == "error"]
    assert result.policy is not None or errors
    assert isinstance(result.policy, Policy | None)
    for found in result.diagnostics:
        assert re.fullmatch(r"[a-z]+/[a-z0-9-]+", found.code)
        assert found.message
        assert not found.message.endswith(".")
        assert found.span.line >= 1
        assert found.span.column >= 1
    assert len(render_json(result.diagnostics)) == len(set(result.diagnostics))
    render_text(result.diagnostics)


@given(st.binary(max_size=300))
def test_random_bytes(data):
    check_result(read_text(data))


@given(st.text(max_size=300))
def test_random_text(text):
    check_result(read_text("policyguard: 1\nname: x\n" + text))


WORDS = st.sampled_from(sorted({token for token in TOKENS if token.isalpha()}))
TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(300, 8), deadline=None)
@given(st.dictionaries(WORDS, TREE, max_size=6))
def test_random_trees_with_the_languages_own_words(tree):
    text = json.dumps({"policyguard": 1, "name": "x", **tree})
    check_result(read_text(text))


@settings(max_examples=examples(500, 8), deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(POLICIES))
def test_policies_with_parts_deleted_repeated_and_swapped(rng: random.Random, text):
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        index = rng.randrange(len(tokens))
        what = rng.random()
        if what < 0.3:
            tokens[index] = rng.choice(TOKENS)
        elif what < 0.5:
            del tokens[index : index + rng.choice([1, 1, 2, 5])]
        elif what < 0.65:
            tokens.insert(index, rng.choice(TOKENS))
        elif what < 0.8:
            start = rng.randrange(len(tokens))
            tokens[index:index] = tokens[start : start + rng.randrange(1, 30)]
        else:
            tokens[index] = rng.choice(VALUES)
        tokens = tokens or [" "]
    check_result(read_text("".join(tokens), str(CASES / "none" / "x.yaml")))


@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(rng):
    """The order of sections and of map keys has no meaning."""
    sections = {
        "rules": ["a: {tools: [x], effect: halt}", "b: {when: call.tool == 'x'}"],
        "budgets": ["a: {calls: 5, per: turn}", "b: {calls: $n}"],
        "params": ["n: 5", "m: 5m"],
        "lists": ["l: [$k, x]", "k: [y]"],
        "limits": ["default: {repeat: {max: 3}}", "tools: {a: {cycle: {max: 2}}}"],
        "mode": [],
    }

    def written(order: list[str]) -> Policy:
        lines = ["policyguard: 1", "name: x"]
        for section in order:
            entries = sections[section]
            lines.append(f"{section}: observe" if section == "mode" else f"{section}:")
            lines += [f"  {entry}" for entry in rng.sample(entries, len(entries))]
        result = read_text("\n".join(lines))
        assert result.diagnostics == []
        return result.policy

    one = written(list(sections))
    other = written(rng.sample(list(sections), len(sections)))
    assert {rule.id: rule for rule in one.rules} == {rule.id: rule for rule in other.rules}
    assert {b.id: b for b in one.budgets} == {b.id: b for b in other.budgets}
    assert (one.params, one.lists, one.limits) == (other.params, other.lists, other.limits)
    assert one.mode == other.mode == "observe"


def test_policy_without_mistakes_has_every_value_of_its_file():
    text = (CASES / "a_policy_without_mistakes" / "policy.yaml").read_text("utf-8")
    result = read_text(text, str(CASES / "a_policy_without_mistakes" / "policy.yaml"))
    assert result.diagnostics == []
    tree = to_plain(result.merged.tree)
    assert tree["rules"]["everything"]["tools"]["outside"] == ["write", "edit", "patch", "x"]
    assert tree["lists"]["base"] == ["b"]
