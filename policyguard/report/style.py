"""Styles of text reports: plain, or fitted to a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from unicodedata import east_asian_width

_WIDTH = 20
_WIDE = 100
"""Columns of a terminal in which nothing is left out."""
_LINES_OF_SHELL = 4
"""Lines of a screen besides the text: a suggestion, and the shell's command and prompt."""
_CODE = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r" *[^ ]+(?: %)? *|[ ]+")
"""A word with the spaces around it; a percentage is one word."""
_LABEL = re.compile(r"[a-z]{1,7} +(?=\S)")
_EIGHTHS = "▏▎▍▌▋▊▉"


class Style:
    """Text with colours and in lines of at most `width` columns, for terminals; or plain text.

    With a `width` of 0, for files and pipes, lines have any length. `height` is the number of lines
    of a terminal, 0 for files and pipes.
    """

    def __init__(self, *, coloured: bool, width: int = 0, height: int = 0) -> None:
        self._coloured = coloured
        self._width = width
        self._height = height

    @property
    def narrow(self) -> bool:
        """Whether a table has to do without what takes much room."""
        return 0 < self._width < _WIDE

    def is_beyond_screen(self, text: str) -> bool:
        """Return whether a terminal cannot show the first and last line of a text at once."""
        return 0 < self._height <= text.count("\n") + _LINES_OF_SHELL

    def strong(self, text: str) -> str:
        """Style a heading."""
        return self._with_code(1, text)

    def bad(self, text: str) -> str:
        """Style the most important text."""
        return self._with_code(31, text)

    def warning(self, text: str) -> str:
        """Style a warning."""
        return self._with_code(33, text)

    def faint(self, text: str) -> str:
        """Style less important text."""
        return self._with_code(2, text)

    def bar(self, share: float) -> str:
        """Draw a share from 0 to 1 as a bar; any share above 0 is visible."""
        units = 8 if self._coloured else 1
        length = max(min(_WIDTH * units, round(share * _WIDTH * units)), int(share > 0))
        full, rest = divmod(length, units)
        if not self._coloured:
            return "#" * full + "." * (_WIDTH - full)
        text = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
        return self._with_code(36, text) + " " * (_WIDTH - len(text))

    def join(self, lines: Iterable[str]) -> str:
        """Join lines, each broken between words if it is too long.

        Continuation lines align with the text after a label, else they are indented by two more.
        """
        if not self._width:
            return "\n".join(lines)
        return "\n".join(part for line in lines for part in self._wrap(line))

    def _wrap(self, line: str) -> Iterator[str]:
        text = _CODE.sub("", line)
        label = _LABEL.match(text)
        indent = len(label[0]) if label else len(text) - len(text.lstrip(" ")) + 2
        current, length = "", 0
        for word in _WORD.findall(line):
            if length and length + _columns(word.rstrip(" ")) > self._width:
                yield current.rstrip(" ")
                current, length, word = " " * indent, indent, word.lstrip(" ")
            current += word
            length += _columns(word)
        yield current.rstrip(" ")

    def _with_code(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._coloured else text


def _columns(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in _CODE.sub("", text))


PLAIN = Style(coloured=False)
