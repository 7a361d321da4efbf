"""TOML with positions of tables, keys and texts.

The standard library's parser gives no positions, so they are searched for in the text: usual
spellings of a header or key are found, others get the position of what encloses them.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, NamedTuple

from policyguard.engines.source import SourceText, decode_source
from policyguard.model.diagnostic import Diagnostic, Span

_ERROR_POSITION = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)$")


class ParsedToml(NamedTuple):
    """The values of a file (None if it is not TOML), its diagnostics and text."""

    source: SourceText
    values: dict[str, Any] | None
    diagnostics: list[Diagnostic]


def parse(data: bytes, file: str) -> ParsedToml:
    """Parse a TOML document. `file` is the name in diagnostics. Never raises."""
    source, diagnostics = decode_source(data, file)
    if diagnostics:
        return ParsedToml(source, None, diagnostics)
    try:
        return ParsedToml(source, tomllib.loads(source.text), [])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return ParsedToml(
            source, None, [_syntax_diagnostic(source, str(error) or "nested too deep")]
        )


def find_span(source: SourceText, table: str, key: str = "", text: str = "") -> Span:
    """Return the span of a table's header, of a key in it, or of a quoted text in its value."""
    whole = source.text
    start, end = 0, len(whole)
    match = re.search(rf"(?m)^[ \t]*\[[ \t]*({re.escape(table)})[ \t]*\]", whole)
    if match is not None:
        start = match.end()
        next_table = re.compile(r"(?m)^[ \t]*\[+[A-Za-z_]").search(whole, start)
        end = next_table.start() if next_table else end
    for name, pattern in (
        (key, r"(?m)^[ \t]*[\"']?({})[\"']?[ \t]*[=.]"),
        (text, r"[\"']({})[\"']"),
    ):
        if name:
            inner = re.compile(pattern.format(re.escape(name))).search(whole, start, end)
            if inner is None:
                break
            match, start = inner, inner.end()
    return source.span(*match.span(1)) if match is not None else source.span(0, 0)


def _syntax_diagnostic(source: SourceText, error: str) -> Diagnostic:
    position = _ERROR_POSITION.search(error)
    reason = error[: position.start()].strip() if position else error
    offset = len(source.text)
    if position and position[1]:
        offset = min(source.offset(int(position[1]), int(position[2])), offset)
    span = source.span(offset, min(offset + 1, len(source.text)))
    message = f"invalid TOML: {reason[:1].lower()}{reason[1:]}"
    return source.diagnostic("config/syntax", message, span)
