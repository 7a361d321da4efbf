"""The text of a policy file, and positions in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path

from policyguard.engines.input_file import open_input
from policyguard.model.diagnostic import Diagnostic, Edit, Severity, Span

MAX_FILE_BYTES = 1024 * 1024
"""The maximum size of a policy file."""

_MAX_SHOWN_LINES = 8
"""Source lines in a diagnostic."""

_MAX_REPORTED_CHARACTERS = 20
"""Forbidden characters reported per file; a binary file is full of them."""

# Includes U+0085, U+2028 and U+2029, which are line breaks in YAML 1.1 only: what one reader takes
# for a comment would be a rule to another.
_FORBIDDEN_CHARACTER = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)


@dataclass(frozen=True)
class SourceText:
    r"""A file's name and text. Line breaks are `\n`, offsets count code points."""

    file: str
    text: str = field(repr=False)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their breaks."""
        return self.text.split("\n")

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def span(self, start: int, end: int) -> Span:
        """Return the span from offset `start` up to offset `end`."""
        line, end_line = (bisect_right(self._line_starts, offset) for offset in (start, end))
        return Span(
            self.file,
            line,
            start - self._line_starts[line - 1] + 1,
            end_line,
            end - self._line_starts[end_line - 1] + 1,
        )

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column of this file."""
        return self._line_starts[line - 1] + column - 1

    def diagnostic(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        hint: str | None = None,
        severity: Severity = "error",
        edits: tuple[Edit, ...] = (),
    ) -> Diagnostic:
        """Create a diagnostic at `span`, with the source lines that show it."""
        lines = self.lines[span.line - 1 : min(span.end_line, span.line - 1 + _MAX_SHOWN_LINES)]
        return Diagnostic(
            code=code,
            severity=severity,
            message=message,
            span=span,
            help=hint,
            lines=tuple(lines),
            edits=edits,
        )


def read_source(file: Path | Traversable, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a policy file, or so much of a larger one that it is seen to be too large."""
    with open_input(file) if isinstance(file, Path) else file.open("rb") as handle:
        return handle.read(max_bytes + 1)


def decode_source(data: bytes | str, file: str) -> tuple[SourceText, list[Diagnostic]]:
    """Decode `data` as UTF-8, with or without a byte order mark, and with any line breaks.

    Diagnostics say why it cannot be a policy; the source is then only for showing the position, and
    must not be parsed.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if len(data) > MAX_FILE_BYTES:
        source = SourceText(file, "")
        message = f"the file has {len(data):,} bytes; at most {MAX_FILE_BYTES:,} are allowed"
        return source, [source.diagnostic("load/too-large", message, source.span(0, 0))]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        source = SourceText(file, "")
        message = "the file is not UTF-8; it looks like UTF-16"
        hint = "save the file as UTF-8"
        return source, [source.diagnostic("yaml/encoding", message, source.span(0, 0), hint=hint)]
    text, bad_byte = _decode(data)
    source = SourceText(file, text)
    if bad_byte is not None:
        message = f"byte 0x{data[bad_byte]:02x} is not UTF-8"
        offset = len(_normalize_text(data[:bad_byte].decode("utf-8")))
        span = source.span(offset, offset + 1)
        hint = "save the file as UTF-8"
        return source, [source.diagnostic("yaml/encoding", message, span, hint=hint)]
    return source, [
        source.diagnostic(
            "yaml/control-character",
            f"invisible character U+{ord(match[0]):04X}",
            source.span(*match.span()),
            hint=f'write `"{_escape(match[0])}"` in double quotes, or remove it',
        )
        for match in islice(_FORBIDDEN_CHARACTER.finditer(text), _MAX_REPORTED_CHARACTERS)
    ]


def _decode(data: bytes) -> tuple[str, int | None]:
    try:
        return _normalize_text(data.decode("utf-8")), None
    except UnicodeDecodeError as error:
        return _normalize_text(data.decode("utf-8", "replace")), error.start


def _normalize_text(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
