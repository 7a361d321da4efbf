"""TOML with positions of tables, keys and texts.

The standard library's parser gives no positions, so they are searched for in the text: usual
spellings of a header or key are found, others get the position of what encloses them.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, NamedTuple

from policyguard.engines.source import Source, decode_source
from policyguard.model.diagnostic import Diagnostic, Span

_ERROR_POSITION = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)$")


class ParsedToml(NamedTuple):
    """The values of a file (None if it is not TOML), its diagnostics and text."""

    source: Source
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


def find_span(source: Source, table: str, key: str = "", text: str = "") -> Span:
    """Return the span of a table's header, of a key in it, or of a quoted text in the key's value."""
    whole = source.text
    start, end = 0, len(whole)
    header = re.search(rf"(?m)^[ \t]*\[[ \t]*({re.escape(table)})[ \t]*\]", whole)
    found = header
    if header is not None:
        start = header.end()
        following = re.compile(r"(?m)^[ \t]*\[+[A-Za-z_]").search(whole, start)
        end = following.start() if following else end
    for wanted, pattern in (
        (key, r"(?m)^[ \t]*[\"']?({})[\"']?[ \t]*[=.]"),
        (text, r"[\"']({})[\"']"),
    ):
        if wanted:
            inner = re.compile(pattern.format(re.escape(wanted))).search(whole, start, end)
            if inner is None:
                break
            found, start = inner, inner.end()
    return source.span(*found.span(1)) if found is not None else source.span(0, 0)


def _syntax_diagnostic(source: Source, said: str) -> Diagnostic:
    where = _ERROR_POSITION.search(said)
    message = said[: where.start()].strip() if where else said
    offset = len(source.text)
    if where and where[1]:
        offset = min(source.offset(int(where[1]), int(where[2])), offset)
    span = source.span(offset, min(offset + 1, len(source.text)))
    message = f"this is not TOML: {message[:1].lower()}{message[1:]}"
    return source.diagnostic("config/syntax", message, span)
