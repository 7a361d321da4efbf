"""Results of policy tests as GitHub Actions commands, which annotate a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.findings.diagnostics import sort_unique
from policyguard.report.findings.formats import render_annotation, render_command
from policyguard.report.policy_tests.results import Failure, TestReport


def render_github(report: TestReport) -> str:
    """Render one command per error and per failed expectation; empty for none."""
    return "\n".join(_commands(report))


def _commands(report: TestReport) -> Iterator[str]:
    errors = sort_unique(error for file in report.files for error in file.errors)
    yield from map(render_annotation, errors)
    for file in report.files:
        for test in file.tests:
            for failure in test.failures:
                yield render_command("error", failure.span, test.name, _describe(failure))


def _describe(failure: Failure) -> str:
    lines = [failure.step]
    for mismatch in failure.mismatches:
        lines += [f"expected: {mismatch.expected}", f"found: {mismatch.found}"]
    return "\n".join(lines)
