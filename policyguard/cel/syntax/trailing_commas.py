"""Trailing commas in lists, maps and messages, which cel-python's grammar lacks.

cel-spec langdef.md allows one before the closing bracket (`[1, 2,]`, even `[,]`), but not in the
arguments of a call, nor in an index.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r'//[^\n]*|[\w"]+|\S')
_WORD: Final = re.compile(r'[\w"]')
_CLOSED: Final = frozenset(")]}")


def blank_trailing_commas(masked: str) -> str:
    """Replace trailing commas by spaces. Strings in `masked` have no brackets or commas."""
    if "," not in masked:
        return masked
    blanks: list[int] = []
    openings: list[str] = []
    before, start = "", 0
    for token in _TOKEN.finditer(masked):
        text = token[0]
        if text.startswith("//"):
            continue
        if text in ("(", "{"):
            openings.append(text)
        elif text == "[":
            is_index = before in _CLOSED or (before != "in" and _WORD.match(before) is not None)
            openings.append("index" if is_index else text)
        elif text in _CLOSED and openings and openings.pop() in ("[", "{") and before == ",":
            blanks.append(start)
        before, start = text, token.start()
    parts: list[str] = []
    copied = 0
    for start in blanks:
        parts += (masked[copied:start], " ")
        copied = start + 1
    return "".join([*parts, masked[copied:]])
