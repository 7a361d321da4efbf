"""How deep JSON nests: what is read must also be walked and written again, later and elsewhere."""

from __future__ import annotations

import re

DEEPEST = 200
"""Levels. A decoder stops near 1000, and whoever walks the value has less of the stack left."""

SHALLOW = 2 * DEEPEST
"""Bytes of a text that is too short to close what it would have to open."""

_OPENING, _CLOSING = b"[{", b"]}"
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
"""Brackets, and strings, so that the brackets inside them are passed over."""


def nests_too_deeply(text: bytes | str) -> bool:
    """Whether a valid JSON text has more than `DEEPEST` objects and lists inside one another."""
    if len(text) <= SHALLOW:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for token in _STRUCTURE.finditer(data):
        first = data[token.start()]
        if first in _OPENING:
            depth += 1
            if depth > DEEPEST:
                return True
        elif first in _CLOSING:
            depth -= 1
    return False
