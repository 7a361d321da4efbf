"""Render results of policy tests as text and as JSON. Texts from tests and results are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from policyguard.model.decision import Decision
from policyguard.report.escape import for_terminal, json_document
from policyguard.report.findings.diagnostics import render_json as diagnostics_json
from policyguard.report.findings.diagnostics import render_text as diagnostics_text
from policyguard.report.findings.diagnostics import sort_unique, source_excerpt
from policyguard.report.policy_tests.results import Coverage, Failure, FileResult, TestReport

MAX_LINE = 400
"""Characters of a message line or value to show."""

MAX_FAILURES = 5
"""Failures of one test to show; a trace may have many."""


def render_text(report: TestReport) -> str:
    """Render the report that `policyguard test` prints."""
    return "\n".join(_lines(report))


def render_failure(failure: Failure) -> str:
    """Render one failure with its source line."""
    return "\n".join(_failure(failure))


def render_coverage(coverage: Coverage) -> str:
    """Render the coverage of one policy."""
    return "\n".join(_coverage(coverage))


def _lines(report: TestReport) -> Iterator[str]:
    # Errors of a policy with several test files appear once.
    errors = sort_unique(error for file in report.files for error in file.errors)
    if errors:
        yield diagnostics_text(errors)
    for file in report.files:
        for test in file.tests:
            if not test.failures:
                continue
            yield f"FAILED {for_terminal(file.file)}: {for_terminal(test.name)}"
            for failure in test.failures[:MAX_FAILURES]:
                yield from _failure(failure)
            if len(test.failures) > MAX_FAILURES:
                yield f"  … and {len(test.failures) - MAX_FAILURES} more (all in --format json)"
            yield ""
    for file in report.files:
        failed = sum(bool(test.failures) for test in file.tests)
        outcome = "could not be run" if file.errors else _count(len(file.tests), "test")
        if failed:
            outcome += f", {failed} failed"
        name = f" ({for_terminal(file.policy, 60)})" if file.policy else ""
        yield f"{for_terminal(file.file)}{name}: {outcome}"
    for coverage in report.coverage or ():
        yield ""
        yield render_coverage(coverage)
    yield ""
    yield _summary(report)


def _summary(report: TestReport) -> str:
    parts = [f"{report.passed} passed"]
    if report.failed:
        parts.append(f"{report.failed} failed")
    if report.broken:
        parts.append(f"{_count(report.broken, 'file')} could not be run")
    return f"{', '.join(parts)} in {report.seconds:.2f} s"


def _failure(failure: Failure) -> Iterator[str]:
    span = failure.span
    gutter = " " * len(str(span.line + max(len(failure.lines) - 1, 0)))
    yield f"{gutter}--> {for_terminal(span.file)}:{span.line}:{span.column}"
    if failure.lines:
        yield f"{gutter} |"
        yield from source_excerpt(failure.lines, span, len(gutter))
    rows = [("step", failure.step)]
    for mismatch in failure.mismatches:
        rows.append(("expected", mismatch.expected))
        rows.append(("found", mismatch.found))
    if failure.decision is not None:
        rows += _decision_rows(failure.decision)
    if failure.state:
        rows.append(
            ("session", ", ".join(f"{key} {value}" for key, value in _changed_state(failure)))
        )
    for name, text in rows:
        head = f"= {name + ':':<9}" if name else " " * 11
        yield f"{gutter} {head} {for_terminal(text, MAX_LINE)}"


def _decision_rows(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield the violations and the message of a decision as named rows.

    Only the first line of the message has a name.
    """
    if decision.violations:
        ids = ", ".join(f"{entry.id} ({entry.effect})" for entry in decision.violations)
        yield "by", ids
    if decision.would:
        ids = ", ".join(f"{entry.id} ({entry.effect})" for entry in decision.would)
        yield "would", ids
    if decision.waived:
        yield "waived", ", ".join(f"{one.violation} by {one.exception}" for one in decision.waived)
    for number, line in enumerate(decision.message.splitlines()):
        yield ("message" if number == 0 else ""), line
    for error in decision.errors:
        yield "undecided", f"{error.id}: {error.error}"


def _changed_state(failure: Failure) -> Iterator[tuple[str, Any]]:
    """Yield the session fields that are not at their initial values."""
    for name, value in failure.state.items():
        if value or name == "calls":
            yield name, value


def _coverage(coverage: Coverage) -> Iterator[str]:
    reached = len(coverage.entries) - len(coverage.missed)
    yield (
        f"coverage of {for_terminal(coverage.policy, 60)} ({for_terminal(coverage.file)}): "
        f"{reached} of {_count(len(coverage.entries), 'entry', 'entries')} reached"
    )
    if coverage.inherited:
        yield f"  {coverage.inherited} more come from packs, and are tested with them"
    if coverage.missed:
        yield "  no test reached:"
        width = max(len(entry.id) for entry in coverage.missed)
        for entry in coverage.missed:
            yield f"    {entry.id:<{width}}  {for_terminal(entry.file)}:{entry.line}"


def render_json(report: TestReport) -> str:
    """Render the report as a JSON object, with `coverage` if requested."""
    document: dict[str, Any] = {
        "passed": report.passed,
        "failed": report.failed,
        "broken": report.broken,
        "seconds": report.seconds,
        "files": [_file(file) for file in report.files],
    }
    if report.coverage is not None:
        document["coverage"] = [
            {
                "policy": one.policy,
                "file": one.file,
                "reached": len(one.entries) - len(one.missed),
                "inherited": one.inherited,
                "entries": [msgspec.to_builtins(entry) for entry in one.entries],
            }
            for one in report.coverage
        ]
    return json_document(document)


def _file(file: FileResult) -> dict[str, Any]:
    return {
        "file": file.file,
        "policy": file.policy,
        "errors": diagnostics_json(file.errors),
        "tests": [
            {
                "name": test.name,
                "line": test.line,
                "passed": not test.failures,
                "seconds": test.seconds,
                "failures": [_failure_json(failure) for failure in test.failures],
            }
            for test in file.tests
        ],
    }


def _failure_json(failure: Failure) -> dict[str, Any]:
    return {
        "file": failure.span.file,
        "line": failure.span.line,
        "column": failure.span.column,
        "step": failure.step,
        "mismatches": [msgspec.to_builtins(mismatch) for mismatch in failure.mismatches],
        # A refusing decision is falsy.
        "decision": _decision(failure.decision) if failure.decision is not None else None,
        "state": failure.state,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "effect": decision.effect.value,
        "violations": [
            {"id": one.id, "effect": one.effect.value, "text": one.text}
            for one in decision.violations
        ],
        "would": [one.id for one in decision.would],
        "waived": {one.violation: one.exception for one in decision.waived},
        "message": decision.message,
        "errors": [msgspec.to_builtins(error) for error in decision.errors],
    }


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
