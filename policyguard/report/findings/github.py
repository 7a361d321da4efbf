"""Render findings as GitHub Actions commands, which annotate a pull request.

Each finding is one line. Line breaks and separators in untrusted text are percent-encoded, so that
they cannot start another command or property.
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.model.diagnostic import Diagnostic
from policyguard.report.escape import for_github, for_github_property
from policyguard.report.findings.findings import Findings

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(findings: Findings) -> str:
    """Render one command per finding; empty for none."""
    return "\n".join(map(_annotation, findings.diagnostics))


def _annotation(found: Diagnostic) -> str:
    properties = ",".join(
        f"{name}={for_github_property(str(value))}" for name, value in _properties(found)
    )
    text = found.message if found.help is None else f"{found.message}\nhelp: {found.help}"
    return f"::{_COMMANDS[found.severity]} {properties}::{for_github(text)}"


def _properties(found: Diagnostic) -> Iterator[tuple[str, str | int]]:
    span = found.span
    yield "file", span.file
    yield "line", span.line
    yield "endLine", span.end_line
    if span.line == span.end_line:  # columns of several lines are refused
        yield "col", span.column
        yield "endColumn", span.end_column
    yield "title", found.code
