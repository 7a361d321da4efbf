"""Each folder of `tests/cases/lint` is a policy with its whole report.

A case is read from inside its folder, with the variables in its file `environ`, one `NAME=value`
a line. To pin reports anew, run with `POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.report.findings.diagnostics import render_text

CASES = Path(__file__).parents[1] / "cases" / "lint"
CASE_NAMES = sorted(policy.parent.name for policy in CASES.glob("*/policy.yaml"))


@pytest.mark.parametrize("case", CASE_NAMES)
def test_report_matches_the_pinned_one(case, monkeypatch):
    monkeypatch.chdir(CASES / case)
    variables = Path("environ").read_text().splitlines() if Path("environ").exists() else []
    environ = dict(line.split("=", 1) for line in variables)
    compiled, diagnostics = check_policy("policy.yaml", environ=environ)
    report = render_text(diagnostics)
    pinned = Path("expected.txt")
    if os.environ.get("POLICYGUARD_PIN"):
        pinned.write_text(report, "utf-8")
    assert report == pinned.read_text("utf-8")
    assert (compiled is None) == any(found.severity == "error" for found in diagnostics)
