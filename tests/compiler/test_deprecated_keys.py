"""A key that the language is about to drop is warned of, wherever it stands, and still works."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.load import schema
from policyguard.report.findings.diagnostics import render_text

POLICY = """policyguard: 1
name: old
limits: {default: {repeat: {max: 3, window: 5}}}
rules: {r: {tools: [x], owner: me}}
"""


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A schema in which two keys are on their way out; there are none in the published one."""
    document = copy.deepcopy(schema.document())
    definitions = document["$defs"]
    window = {**definitions["repeat"]["properties"]["window"], "deprecated": True}
    definitions["repeat"]["properties"]["window"] = {**window, "x-hint": "leave it out"}
    definitions["owner"] = {**definitions["owner"], "deprecated": True}
    schema.validator.cache_clear()
    monkeypatch.setattr(schema, "document", lambda: document)
    yield
    schema.validator.cache_clear()


def test_a_deprecated_key_is_a_warning_at_its_place(tmp_path: Path, changed: None) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    compiled, diagnostics = check_policy(file)
    assert compiled is not None
    assert [(one.code, one.severity, one.span.line) for one in diagnostics] == [
        ("schema/deprecated", "warning", 3),
        ("schema/deprecated", "warning", 4),
    ]
    assert "leave it out" in render_text(diagnostics)


def test_nothing_that_is_published_is_deprecated(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert check_policy(file)[1] == []
