"""The formats of `policyguard lint`, by name."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.report.escape import json_document
from policyguard.report.findings.diagnostics import render_json, render_text
from policyguard.report.findings.findings import Findings
from policyguard.report.findings.github import render_github
from policyguard.report.findings.junit import render_junit
from policyguard.report.findings.sarif import render_sarif

FORMATS: dict[str, Callable[[Findings], str]] = {
    "text": lambda findings: render_text(findings.diagnostics),
    "json": lambda findings: json_document(render_json(findings.diagnostics)),
    "sarif": render_sarif,
    "github": render_github,
    "junit": render_junit,
}
