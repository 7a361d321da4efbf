"""What ships is clean, and what the rules say of policies that people wrote is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.lint import lint_paths
from policyguard.report.findings.diagnostics import render_text
from tests.examples import slow_but, some

ROOT = Path(__file__).parents[2]
DEFAULT = ROOT.parent / "shared" / "example-policies"
EXAMPLES = Path(os.environ.get("POLICYGUARD_EXAMPLES", DEFAULT))
PACKS = sorted((ROOT / "policies").rglob("policy.yaml"))
DEFAULT_RUN = ("core", "coding-agent")

RIGHT = {
    ("rule-without-examples", "browser-agent.yaml", "passwords-where-they-belong"),
    ("rule-without-examples", "ci-bot.yaml", "strangers-get-no-shell"),
    ("rule-without-examples", "coding-agent.yaml", "tests-before-push"),
    ("rule-without-examples", "customer-support.yaml", "who-is-asking"),
    ("rule-without-examples", "ops-agent.yaml", "plan-before-apply"),
    ("rule-without-examples", "ops-agent.yaml", "production-needs-a-ticket"),
    ("rule-without-examples", "regulated.yaml", "legal-hold"),
    ("rule-without-examples", "regulated.yaml", "screened-first"),
    ("rule-without-examples", "research-agent.yaml", "no-uploads"),
    # `core` has several of these limits, each of which counts something else.
    ("replaced-limits", "batch-pipeline.yaml", "failures"),
    ("replaced-limits", "batch-pipeline.yaml", "repeat"),
    ("replaced-limits", "browser-agent.yaml", "repeat"),
    ("replaced-limits", "coding-agent.yaml", "failures"),
    ("replaced-limits", "coding-agent.yaml", "repeat"),
    ("replaced-limits", "polling-workflow.yaml", "repeat"),
    # Its class for polls takes the place of `waiting`, which `core` knows to change nothing.
    ("shadowed-class", "polling-workflow.yaml", "poll"),
    # Its host may report a training only when it ends.
    ("timeout-above-unreported", "ml-search.yaml", "6h"),
    # It waits for results that no key of their metadata ever flags.
    ("unused-meta", "research-agent.yaml", "no_progress"),
}
"""What the rules may say of the example policies, as far as they load: each has been looked at."""


@pytest.mark.slow
def test_what_ships_is_clean():
    result = lint_paths([ROOT / "policies"])
    assert render_text(result.diagnostics) == ""
    assert all(ignored.reason for ignored in result.ignored)


@pytest.mark.parametrize(
    "file",
    slow_but([file for file in PACKS if file.parent.name in DEFAULT_RUN], PACKS),
    ids=lambda f: f.parent.name,
)
def test_each_pack_is_clean_by_itself(file):
    result = lint_paths([file])
    assert render_text(result.diagnostics) == ""
    assert all(ignored.reason for ignored in result.ignored)


@pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason=f"no example policies in {EXAMPLES} (POLICYGUARD_EXAMPLES)"
)
@pytest.mark.parametrize("file", some(sorted(EXAMPLES.glob("*.yaml")), 4), ids=lambda f: f.stem)
def test_examples_have_no_findings(file):
    for found in lint_paths([file], select=["lint"]).diagnostics:
        if found.code.startswith("lint/"):
            slug = found.code.removeprefix("lint/")
            marked = found.lines[0][found.span.column - 1 : found.span.end_column - 1]
            assert (slug, file.name, marked) in RIGHT, render_text([found])
