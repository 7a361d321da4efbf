"""Each rule of `policyguard lint` has a page, a policy that it fails and one that it does not.

`tests/cases/lint/rules/RULE/` holds `failing.yaml`, the report that it must give in `failing.txt`,
and `clean.yaml`, about which no rule may report anything. To pin reports anew, run with
`POLICYGUARD_PIN=1` and read the difference. Where there is a `fixed.yaml`, `failing.yaml` becomes
that by its fixes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import policyguard.lint.rules as folder
from policyguard.lint import fix, lint_paths
from policyguard.lint.catalog import PAGES
from policyguard.lint.rule import rule_code, rule_page
from policyguard.lint.rules import RULES
from policyguard.report.findings.diagnostics import render_text

CASES = Path(__file__).parents[1] / "cases" / "lint" / "rules"
FILES = {file.stem: file for file in Path(folder.__file__).parent.glob("*/*.py")}
FILES.pop("__init__")
NAMES = [rule.__name__.rpartition(".")[2] for rule in RULES]
FIXED = sorted(path.parent.name for path in CASES.glob("*/fixed.yaml"))


def test_each_file_is_listed_once_and_has_a_page_and_cases():
    assert sorted(NAMES) == sorted(FILES)
    assert len(set(NAMES)) == len(NAMES)
    assert sorted(case.name for case in CASES.iterdir()) == sorted(NAMES)
    for rule in RULES:
        page = rule_page(rule)
        assert PAGES[rule_code(rule)] == page
        first, _, rest = page.partition("\n")
        assert first.endswith("."), rule
        assert "\n\nAvoid" in rest, rule
        assert "\n\nPrefer" in rest, rule


@pytest.mark.parametrize("name", NAMES)
def test_the_failing_policy_is_reported_as_pinned(name, monkeypatch):
    monkeypatch.chdir(CASES / name)
    rule = RULES[NAMES.index(name)]
    result = lint_paths([Path("failing.yaml")], select=[rule_code(rule)])
    assert result.diagnostics
    assert {found.code for found in result.diagnostics} == {rule_code(rule)}
    report = render_text(result.diagnostics)
    if os.environ.get("POLICYGUARD_PIN"):
        Path("failing.txt").write_text(report, "utf-8")
    assert report == Path("failing.txt").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_clean_policy_has_no_findings(name, monkeypatch):
    monkeypatch.chdir(CASES / name)
    assert render_text(lint_paths([Path("clean.yaml")]).diagnostics) == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_short(name):
    assert len(FILES[name].read_text().splitlines()) <= 200


@pytest.mark.parametrize("name", FIXED)
def test_the_fix_is_the_pinned_one(name, tmp_path, monkeypatch):
    monkeypatch.chdir(CASES / name)
    rule = RULES[NAMES.index(name)]
    for file in Path().glob("*.yaml"):
        shutil.copy(file, tmp_path)
    target = tmp_path / "failing.yaml"
    fixed = fix([target], select=[rule_code(rule)])
    assert fixed.fixed
    assert fixed.files == (target,)
    if os.environ.get("POLICYGUARD_PIN"):
        Path("fixed.yaml").write_text(target.read_text("utf-8"), "utf-8")
    assert target.read_text("utf-8") == Path("fixed.yaml").read_text("utf-8")
    assert not any(found.edits for found in fixed.result.diagnostics)
