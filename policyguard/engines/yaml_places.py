"""Where each character of a YAML scalar's value stands in the file.

A parser says where a scalar begins and what its value is, not where the parts of the value are:
quotes, escapes, folded lines, indentation lie between. Each walk below reads the scalar once more
as the parser did, and yields every character of the value with its place. A walk whose characters
do not add up to the value is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

Piece = tuple[str, int, int]
"""One character of the value, and the offsets in the file where it begins and ends."""


class Places(NamedTuple):
    """For each character of a value, where it begins and where it ends in the file.

    `start` is where the value would begin, for a value without characters.
    """

    starts: list[int]
    ends: list[int]
    start: int

    def begin(self, index: int) -> int:
        """Where character `index` begins; past the last one, where the value ends."""
        if index < len(self.starts):
            return self.starts[index]
        return self.ends[-1] if self.ends else self.start

    def end(self, index: int) -> int:
        """Where the characters before `index` end."""
        return self.ends[index - 1] if index else self.begin(0)


_ESCAPED = dict(
    zip(
        '0abt\tnvfre "/\\N_LP',
        '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029',
        strict=True,
    )
)
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
_RUN = re.compile(r"[ \t\n]+")
_BLANK = re.compile(r"(?:[ \t]*\n)*(?:[ \t]*\Z)?")
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(?:#[^\n]*)?(?:\n|\Z)")


def places(text: str, start: int, end: int, style: str, value: str) -> Places | None:
    r"""Find the value of the YAML scalar in `text[start:end]`; `style` is as in `Scalar`.

    `text` has `\n` for each line break. None where the walk does not lead to the value.
    """
    first = start + (style in ("'", '"'))
    for walk in _walks(text, start, end, style):
        pieces = list(walk)[: len(value)]
        if "".join(character for character, _, _ in pieces) == value:
            return Places([place for _, place, _ in pieces], [stop for *_, stop in pieces], first)
    return None


def _walks(text: str, start: int, end: int, style: str) -> Iterator[Iterable[Piece]]:
    if style == '"':
        yield _double_quoted(text, start + 1, end - 1)
    elif style == "'":
        yield _single_quoted(text, start + 1, end - 1)
    elif style in ("|", ">"):
        header = _HEADER.match(text, start)
        if header is None:
            return
        blank = _BLANK.match(text, end)
        lines = list(_lines(text, header.end(), blank.end() if blank else end))
        for indent in _indents(text, lines):
            yield _block(text, lines, indent, folded=style == ">")
    else:
        yield _plain(text, start, end)


def _plain(text: str, position: int, end: int) -> Iterator[Piece]:
    while position < end:
        run = _RUN.match(text, position, end)
        if run:
            yield from _white(text, run.start(), run.end())
            position = run.end()
        else:
            yield text[position], position, position + 1
            position += 1


def _single_quoted(text: str, position: int, end: int) -> Iterator[Piece]:
    while position < end:
        run = _RUN.match(text, position, end)
        if run:
            yield from _white(text, run.start(), run.end())
            position = run.end()
        else:
            width = 2 if text[position] == "'" else 1
            yield text[position], position, position + width
            position += width


def _double_quoted(text: str, position: int, end: int) -> Iterator[Piece]:
    while position < end:
        run = _RUN.match(text, position, end)
        if run:
            yield from _white(text, run.start(), run.end())
            position = run.end()
        elif text[position] != "\\":
            yield text[position], position, position + 1
            position += 1
        elif text[position + 1] == "\n":
            # An escaped line break joins the lines; only further breaks in the gap are kept.
            run = _RUN.match(text, position + 1, end)
            stop = run.end() if run else position + 2
            yield from _breaks(text, position + 2, stop)
            position = stop
        else:
            width = 2 + _HEXADECIMAL.get(text[position + 1], 0)
            yield _unescape(text[position + 1 : position + width]), position, position + width
            position += width


def _unescape(escape: str) -> str:
    if escape[0] in _HEXADECIMAL:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, "")


def _white(text: str, start: int, end: int) -> Iterator[Piece]:
    """White space in a flow scalar: kept within a line, folded around line breaks."""
    first = text.find("\n", start, end)
    if first < 0:
        yield from ((text[place], place, place + 1) for place in range(start, end))
    elif text.find("\n", first + 1, end) < 0:
        yield " ", first, first + 1
    else:
        yield from _breaks(text, first + 1, end)


def _breaks(text: str, start: int, end: int) -> Iterator[Piece]:
    return ((text[place], place, place + 1) for place in range(start, end) if text[place] == "\n")


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends; the line break is not part of it."""
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop + 1


def _indents(text: str, lines: list[tuple[int, int]]) -> list[int]:
    """Return the indentations that a block scalar of these lines may have, likeliest first.

    The first line with text shows it, unless the header gives a digit; that one counts from the
    indentation of the parent, which is not known here.
    """
    shown = next((_depth(text, *line) for line in lines if text[slice(*line)].strip(" ")), 0)
    deepest = max((_depth(text, *line) for line in lines), default=0)
    return [shown, *(indent for indent in range(1, deepest + 2) if indent != shown)]


def _depth(text: str, start: int, end: int) -> int:
    line = text[start:end]
    return len(line) - len(line.lstrip(" "))


def _block(
    text: str, lines: list[tuple[int, int]], indent: int, *, folded: bool
) -> Iterator[Piece]:
    """All characters of a block scalar, every final line break included.

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
        yield from (("\n", place, place + 1) for place in pending)
        yield from ((text[place], place, place + 1) for place in range(begin, stop))
        pending, spaced = [stop], indented
    yield from (("\n", place, place + 1) for place in pending)
