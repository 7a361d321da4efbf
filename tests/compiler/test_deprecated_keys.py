"""A deprecated key is a warning, and still works."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.load import schema
from policyguard.lint.fixes import fix
from policyguard.report.findings.diagnostics import render_text

POLICY = """policyguard: 1
name: old
limits: {default: {repeat: {max: 3, window: 5}}}
rules: {r: {tools: [x], owner: me}}
"""


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Deprecate two more keys of the schema."""
    document = copy.deepcopy(schema.document())
    definitions = document["$defs"]
    window = {**definitions["repeat"]["properties"]["window"], "deprecated": True}
    definitions["repeat"]["properties"]["window"] = {**window, "x-hint": "leave it out"}
    definitions["owner"] = {**definitions["owner"], "deprecated": True}
    schema.validator.cache_clear()
    monkeypatch.setattr(schema, "document", lambda: document)
    yield
    schema.validator.cache_clear()


def test_deprecated_key_is_a_warning_at_its_place(tmp_path: Path, changed: None) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    compiled, diagnostics = check_policy(file)
    assert compiled is not None
    assert [(one.code, one.severity, one.span.line) for one in diagnostics] == [
        ("schema/deprecated", "warning", 3),
        ("schema/deprecated", "warning", 4),
    ]
    assert "leave it out" in render_text(diagnostics)


def test_renamed_key_works_and_has_a_fix(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    old = POLICY + "budgets: {b: {at_once: 2, per: project}}  # runs\n"
    file.write_text(old)
    compiled, (found,) = check_policy(file)
    assert compiled is not None
    (budget,) = compiled.policy.budgets
    assert budget.concurrent == 2
    assert (found.code, found.severity, found.help) == (
        "schema/deprecated",
        "warning",
        "write `concurrent`",
    )
    assert fix([file]).fixed == 1
    assert file.read_text() == old.replace("at_once", "concurrent")
    assert check_policy(file)[1] == []


def test_old_and_new_key_conflict(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + "budgets: {b: {at_once: 2, concurrent: 2}}\n")
    found = check_policy(file)[1]
    assert {one.code for one in found} == {"schema/conflict", "schema/deprecated"}
    assert not any(one.edits for one in found)


def test_layer_overrides_an_inherited_budget_with_the_old_key(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(POLICY + "budgets: {b: {at_once: 2}}\n")
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: new\nextends: [base.yaml]\nbudgets: {b: {concurrent: 3}}\n"
    )
    compiled, found = check_policy(file)
    assert compiled is not None
    assert [budget.concurrent for budget in compiled.policy.budgets] == [3]
    assert [Path(one.span.file).name for one in found] == ["base.yaml"]


def test_only_renamed_keys_are_deprecated(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert check_policy(file)[1] == []
    budget = schema.document()["$defs"]["budget"]["properties"]
    assert [name for name, below in budget.items() if "x-renamed" in below] == ["at_once"]
