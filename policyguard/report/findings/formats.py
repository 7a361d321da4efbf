"""The formats of `policyguard lint`, by name, and GitHub Actions commands among them.

A command annotates a pull request; each finding is one line. Line breaks and separators in
untrusted text are percent-encoded, so that they cannot start another command or property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.report.escape import for_github, for_github_property, for_terminal, json_document
from policyguard.report.findings.diagnostics import Findings, render_json, render_text
from policyguard.report.findings.junit import render_junit
from policyguard.report.findings.sarif import render_sarif

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(findings: Findings) -> str:
    """Render one command per finding; empty for none."""
    return "\n".join(map(render_annotation, findings.diagnostics))


def render_annotation(found: Diagnostic) -> str:
    """Render a finding as a command."""
    text = found.message if found.help is None else f"{found.message}\nhelp: {found.help}"
    return render_command(_COMMANDS[found.severity], found.span, found.code, text)


def render_command(name: str, span: Span, title: str, text: str) -> str:
    """Render a command that annotates a place."""
    properties = ",".join(
        f"{key}={for_github_property(str(value))}" for key, value in _properties(span, title)
    )
    return f"::{name} {properties}::{for_github(text)}"


def _properties(span: Span, title: str) -> Iterator[tuple[str, str | int]]:
    yield "file", span.file
    yield "line", span.line
    yield "endLine", span.end_line
    if span.line == span.end_line:  # columns of several lines are refused
        yield "col", span.column
        yield "endColumn", span.end_column
    yield "title", title


def render_concise(findings: Findings) -> str:
    """Render one line per finding: `file:line:column: code message`."""
    return "\n".join(
        for_terminal(
            f"{found.span.file}:{found.span.line}:{found.span.column}: {found.code} {found.message}"
        )
        for found in findings.diagnostics
    )


FORMATS: dict[str, Callable[[Findings], str]] = {
    "text": lambda findings: render_text(findings.diagnostics),
    "concise": render_concise,
    "json": lambda findings: json_document(render_json(findings.diagnostics)),
    "sarif": render_sarif,
    "github": render_github,
    "junit": render_junit,
}
