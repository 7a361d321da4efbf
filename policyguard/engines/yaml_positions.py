"""The position of each character of a YAML scalar's value.

A parser gives a scalar's start and value, but not the positions within the value: quotes, escapes,
folded lines and indentation lie between. Each scan below reads the scalar again as the parser did,
and yields every character of the value with its position. A scan whose characters do not add up to
the value is discarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LocatedCharacter = tuple[str, int, int]
"""One character of the value, and its start and end offset in the file."""


class ValuePositions(NamedTuple):
    """The start and end offset in the file of each character of a value.

    `first` is where an empty value would begin.
    """

    starts: list[int]
    ends: list[int]
    first: int

    def start_of(self, index: int) -> int:
        """Return where character `index` begins; past the last one, where the value ends."""
        if index < len(self.starts):
            return self.starts[index]
        return self.ends[-1] if self.ends else self.first

    def end_of(self, index: int) -> int:
        """Return where the characters before `index` end."""
        return self.ends[index - 1] if index else self.start_of(0)


_ESCAPES = dict(
    zip('0abt\tnvfre "/\\N_LP', '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True)
)
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_WHITE_SPACE = re.compile(r"[ \t\n]+")
_BLANK = re.compile(r"(?:[ \t]*\n)*(?:[ \t]*\Z)?")
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(?:#[^\n]*)?(?:\n|\Z)")


def locate_value(text: str, start: int, end: int, style: str, value: str) -> ValuePositions | None:
    r"""Locate the value of the YAML scalar in `text[start:end]`; `style` is as in `ScalarNode`.

    `text` has `\n` for each line break. Return None if no scan reproduces the value.
    """
    first = start + (style in ("'", '"'))
    for scan in _scans(text, start, end, style):
        located = list(scan)[: len(value)]
        if "".join(character for character, _, _ in located) == value:
            starts = [begin for _, begin, _ in located]
            return ValuePositions(starts, [stop for *_, stop in located], first)
    return None


def _scans(text: str, start: int, end: int, style: str) -> Iterator[Iterable[LocatedCharacter]]:
    if style not in ("|", ">"):
        is_quoted = bool(style)
        yield _flow(text, start + is_quoted, end - is_quoted, style)
    elif header := _HEADER.match(text, start):
        blank = _BLANK.match(text, end)
        lines = list(_lines(text, header.end(), blank.end() if blank else end))
        for indent in _candidate_indents(text, lines):
            yield _block(text, lines, indent, folded=style == ">")


def _flow(text: str, position: int, end: int, style: str) -> Iterator[LocatedCharacter]:
    """Yield the characters of a plain or quoted scalar between its quotes."""
    while position < end:
        if run := _WHITE_SPACE.match(text, position, end):
            yield from _fold_white_space(text, *run.span())
            position = run.end()
        elif style == '"' and text[position] == "\\":
            escaped = position + 1
            if text[escaped] == "\n":
                # It joins the lines; only further breaks are kept.
                run = _WHITE_SPACE.match(text, escaped, end)
                stop = run.end() if run else escaped + 1
                yield from _line_breaks(text, escaped + 1, stop)
            else:
                stop = escaped + 1 + _HEX_DIGITS.get(text[escaped], 0)
                yield _unescape(text[escaped:stop]), position, stop
            position = stop
        else:
            width = 2 if style == text[position] == "'" else 1
            yield text[position], position, position + width
            position += width


def _unescape(escape: str) -> str:
    if escape[0] in _HEX_DIGITS:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, "")


def _fold_white_space(text: str, start: int, end: int) -> Iterator[LocatedCharacter]:
    """Yield white space of a flow scalar: kept within a line, folded around line breaks."""
    first = text.find("\n", start, end)
    if first < 0:
        yield from ((text[index], index, index + 1) for index in range(start, end))
    elif text.find("\n", first + 1, end) < 0:
        yield " ", first, first + 1
    else:
        yield from _line_breaks(text, first + 1, end)


def _line_breaks(text: str, start: int, end: int) -> Iterator[LocatedCharacter]:
    return ((text[index], index, index + 1) for index in range(start, end) if text[index] == "\n")


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each line, without its break."""
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop + 1


def _candidate_indents(text: str, lines: list[tuple[int, int]]) -> list[int]:
    """Return the possible indentations of a block scalar with these lines, the likeliest first.

    The first line with text shows it, unless the header gives a digit, which counts from the
    parent's indentation; that is not known here.
    """
    likeliest = next(
        (_indent_of(text, *line) for line in lines if text[slice(*line)].strip(" ")), 0
    )
    deepest = max((_indent_of(text, *line) for line in lines), default=0)
    return [likeliest, *(indent for indent in range(1, deepest + 2) if indent != likeliest)]


def _indent_of(text: str, start: int, end: int) -> int:
    line = text[start:end]
    return len(line) - len(line.lstrip(" "))


def _block(
    text: str, lines: list[tuple[int, int]], indent: int, *, folded: bool
) -> Iterator[LocatedCharacter]:
    """Yield all characters of a block scalar, every final line break included.

    In a folded one, a single line break between two lines that do not begin with white space is a
    space, and of several the first is dropped.
    """
    pending: list[int] = []
    spaced = True
    for start, stop in lines:
        begin = min(start + indent, stop)
        if begin == stop:
            pending.append(stop)
            continue
        indented = text[begin] in " \t"
        if folded and not spaced and not indented:
            if len(pending) == 1:
                yield " ", pending[0], pending[0] + 1
            pending = pending[1:] if len(pending) > 1 else []
        yield from (("\n", index, index + 1) for index in pending)
        yield from ((text[index], index, index + 1) for index in range(begin, stop))
        pending, spaced = [stop], indented
    yield from (("\n", index, index + 1) for index in pending)
