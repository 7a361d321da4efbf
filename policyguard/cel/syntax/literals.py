r"""String, bytes and quoted-name literals, decoded before cel-python's parser sees the source.

cel-python's lexer uses regular expressions that try `\a` as one escape or as two letters: an
unterminated literal with thirty escapes takes minutes. It also treats a backslash in a raw string
as an escape, keeps invalid escapes, loses the position of `true` and `false`, and rejects names in
backticks. So literals are decoded here, and the parser gets a source of the same length with
placeholders in their place.

Escapes are those of cel-spec langdef.md, "String and Bytes Values".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from policyguard.cel.syntax.ast import Report, TextSpan

# Python's `re` is safe here: the alternatives are exclusive, so matching is linear.
_OPENING: Final = re.compile(
    r"//[^\n]*"
    r"|(?P<bytes>[bB]?)(?P<raw>[rR]?)(?P<quote>\"\"\"|'''|\"|')"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|`(?P<name>[A-Za-z0-9_./ -]+)`"
    r"|`"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CLOSING: Final[dict[tuple[str, bool], re.Pattern[str]]] = {
    ('"', False): re.compile(r'((?:[^"\\\r\n]|\\[^\r\n])*)"'),
    ("'", False): re.compile(r"((?:[^'\\\r\n]|\\[^\r\n])*)'"),
    ('"', True): re.compile(r'([^"\r\n]*)"'),
    ("'", True): re.compile(r"([^'\r\n]*)'"),
    ('"""', False): re.compile(r'((?:[^"\\]|\\.|"(?!""))*)"""', re.DOTALL),
    ("'''", False): re.compile(r"((?:[^'\\]|\\.|'(?!''))*)'''", re.DOTALL),
    ('"""', True): re.compile(r'((?:[^"]|"(?!""))*)"""'),
    ("'''", True): re.compile(r"((?:[^']|'(?!''))*)'''"),
}
_ESCAPE: Final = re.compile(
    r"\\(?:(?P<letter>[abfnrtv\\?\"'`])"
    r"|[xX](?P<x>[0-9a-fA-F]{2})"
    r"|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})"
    r"|(?P<bad>.?))",
    re.DOTALL,
)
_LETTER_ESCAPES: Final = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


@dataclass(frozen=True, slots=True)
class QuotedName:
    """A field name in backticks, such as `` `content-type` ``."""

    name: str


@dataclass(frozen=True, slots=True)
class Literals:
    """The literals of one source by start offset, and the source with them masked."""

    masked_source: str
    values: dict[int, str | bytes | bool | QuotedName]
    is_complete: bool
    """Whether the whole source was read. If not, later syntax errors only follow from the first."""


def read_literals(source: str, report: Report) -> Literals:
    """Find and decode every literal of `source`.

    Calls `report` for each one that is invalid; it has no value then, but is masked all the same.
    An unclosed literal extends to the end of the source.
    """
    complete = True
    if (surrogate := _SURROGATE.search(source)) is not None:
        report("syntax", "the text has a lone surrogate", TextSpan(*surrogate.span()), None)
        complete = False
    masked: list[str] = []
    values: dict[int, str | bytes | bool | QuotedName] = {}
    copied = 0
    position = 0
    while (opening := _OPENING.search(source, position)) is not None:
        start, position = opening.span()
        text = opening[0]
        if text.startswith("//"):
            continue
        if opening["word"]:
            if text not in ("true", "false"):
                continue
            masked += (source[copied:start], '"', "_" * (len(text) - 2), '"')
            values[start] = text == "true"
            copied = position
            continue
        if (name := opening["name"]) is not None:
            masked += (source[copied:start], "_" * len(text))
            values[start] = QuotedName(name)
            copied = position
            continue
        if (quote := opening["quote"]) is None:
            report("syntax", "unterminated name in backticks", TextSpan(start, position), None)
            complete = False
            masked += (source[copied:start], "_")
            copied = position
            continue
        raw = bool(opening["raw"])
        closing = _CLOSING[quote, raw].match(source, position)
        if closing is None:
            help_ = f"close it with `{quote}`"
            report("syntax", "unterminated string", TextSpan(start, position), help_)
            complete = False
            masked += (source[copied:start], '"', "_" * (len(source) - start - 2), '"')
            copied = len(source)
            break
        end = closing.end()
        value = _decode_body(closing[1], position, raw, bool(opening["bytes"]), report)
        if value is not None:
            values[start] = value
        masked += (source[copied:start], '"', "_" * (end - start - 2), '"')
        position = copied = end
    masked.append(source[copied:])
    return Literals("".join(masked), values, complete)


def _decode_body(
    body: str, start: int, raw: bool, is_bytes: bool, report: Report
) -> str | bytes | None:
    """Decode a literal whose text between the quotes is `body`, at offset `start`."""
    if raw or "\\" not in body:
        return body.encode("utf-8", "replace") if is_bytes else body
    valid = True

    def reject(escape: re.Match[str], reason: str) -> str:
        nonlocal valid
        valid = False
        help_ = "write `\\\\` for a backslash, or a raw string such as r'\\d+'"
        span = TextSpan(start + escape.start(), start + escape.end())
        report("bad-escape", f"`{escape[0]}` {reason}", span, help_)
        return ""

    def decode(escape: re.Match[str]) -> str:
        match escape.lastgroup:
            case "letter":
                return _LETTER_ESCAPES.get(escape["letter"], escape["letter"])
            case "x" | "octal":
                return chr(int(escape["x"], 16) if escape["x"] else int(escape["octal"], 8))
            case "u" | "U" if not is_bytes:
                code_point = int(escape["u"] or escape["U"], 16)
                if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
                    return reject(escape, "is not a Unicode code point")
                return chr(code_point)
            case _:
                kind = "bytes" if is_bytes else "a string"
                return reject(escape, f"is not an escape in {kind}")

    if not is_bytes:
        text = _ESCAPE.sub(decode, body)
        return text if valid else None
    # In bytes an escape is one byte, and any other character its UTF-8 encoding. A lone surrogate,
    # which has none, is reported elsewhere.
    chunks: list[bytes] = []
    copied = 0
    for escape in _ESCAPE.finditer(body):
        chunks.append(body[copied : escape.start()].encode(errors="replace"))
        chunks.append(decode(escape).encode("latin-1"))
        copied = escape.end()
    chunks.append(body[copied:].encode(errors="replace"))
    return b"".join(chunks) if valid else None
