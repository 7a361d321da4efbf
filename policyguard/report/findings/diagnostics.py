"""Diagnostics as text with carets, and as JSON.

A policy's text is untrusted: unprintable characters are escaped, and carets are placed by
displayed width.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.report.style import PLAIN, Style

_TAB = 4
_MAX_WIDTH = 160
"""Columns of a source line to show."""
_MAX_LEAD = 60
"""Columns to show before the caret of a truncated line."""


def render_text(diagnostics: Iterable[Diagnostic], style: Style = PLAIN) -> str:
    """Render sorted diagnostics with their source lines; empty for none."""
    return "\n".join(_text(diagnostic, style) for diagnostic in sort_unique(diagnostics))


def render_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Return sorted diagnostics as plain values; lines and columns start at 1."""
    return [
        {
            "code": found.code,
            "severity": found.severity,
            "message": found.message,
            "file": found.span.file,
            "line": found.span.line,
            "column": found.span.column,
            "end_line": found.span.end_line,
            "end_column": found.span.end_column,
            "help": found.help,
        }
        for found in sort_unique(diagnostics)
    ]


def sort_unique(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return diagnostics sorted by file and position, without duplicates."""
    return sorted(
        dict.fromkeys(diagnostics), key=lambda found: (found.span, found.code, found.message)
    )


def _text(found: Diagnostic, style: Style) -> str:
    span = found.span
    lines = [style.join([f"{found.severity}[{found.code}]: {_escape(found.message)}"])]
    gutter = " " * len(str(span.line + max(len(found.lines) - 1, 0)))
    lines.append(f"{gutter}--> {_escape(span.file)}:{span.line}:{span.column}")
    if any(line.strip() for line in found.lines):
        lines.append(f"{gutter} |")
        lines += source_excerpt(found.lines, span, len(gutter))
    if found.help:
        text = f"{gutter} = help: {_escape(found.help)}  (policyguard explain {found.code})"
        lines.append(style.join([text]))
    return "\n".join(lines) + "\n"


def source_excerpt(lines: tuple[str, ...], span: Span, width: int) -> Iterator[str]:
    """Yield the first and last source line of a span, with carets.

    `width` is that of the line-number column.
    """
    last = span.end_line - span.line
    for offset, line in enumerate(lines):
        if 0 < offset < last:
            if offset == 1:
                yield "..."
            continue
        start = span.column - 1 if offset == 0 else len(line) - len(line.lstrip())
        end = span.end_column - 1 if offset == last else len(line.rstrip())
        shown, before, carets = _mark(line, start, end)
        yield f"{span.line + offset:>{width}} | {shown}".rstrip()
        yield f"{'':>{width}} | {' ' * before}{'^' * carets}"
    if last >= len(lines) > 0:
        yield "..."


def _mark(line: str, start: int, end: int) -> tuple[str, int, int]:
    """Return the displayed line, the columns before the carets, and the number of carets."""
    long = len(line) > _MAX_WIDTH or sum(_width(_cell(c, 0)) for c in line) > _MAX_WIDTH
    first = max(0, start - _MAX_LEAD) if long else 0
    shown = "…" if first else ""
    columns = before = len(shown)
    carets = 0
    for index, character in enumerate(line[first:], first):
        cell = _cell(character, columns) if not _is_command_bracket(line, index) else "\\x5b"
        width = _width(cell)
        if columns + width > _MAX_WIDTH:
            shown += "…"
            break
        shown += cell
        columns += width
        if index < start:
            before = columns
        elif index < end:
            carets += width
    return shown, before, max(carets, 1)


def _cell(character: str, column: int) -> str:
    """Return how to display a character at a column."""
    if character.isprintable():
        return character
    if character == "\t":
        return " " * (_TAB - column % _TAB)
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_command_bracket(text: str, index: int) -> bool:
    """Return whether a GitHub Actions command `##[` ends at `index` (see `escape`)."""
    return text[max(index - 2, 0) : index + 1] == "##["


def _escape(text: str) -> str:
    return "".join(_cell(character, 0) for character in text).replace("##[", "##\\x5b")


def _width(cell: str) -> int:
    if len(cell) > 1:
        return len(cell)
    if unicodedata.combining(cell):
        return 0
    return 2 if unicodedata.east_asian_width(cell) in "WF" else 1


class Findings(NamedTuple):
    """The sorted findings in the checked files (by display name).

    `ignored` are the ignored findings with their reasons. `pages` explain the codes. `broken` are
    the files that do not load, whether because of their own errors or of an inherited file's. With
    `strict`, warnings count as errors.
    """

    files: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]
    ignored: tuple[tuple[Diagnostic, str], ...]
    pages: Mapping[str, str]
    broken: frozenset[str] = frozenset()
    strict: bool = False

    def has_failed(self, found: Diagnostic) -> bool:
        """Whether a finding makes a check fail."""
        return found.severity == "error" or (self.strict and found.severity == "warning")
