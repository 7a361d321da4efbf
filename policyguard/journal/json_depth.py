"""How deep JSON nests: what is read must also be walked and written again, later and elsewhere."""

from __future__ import annotations

import re

MAX_DEPTH = 200
"""Levels. A decoder stops near 1000, and whoever walks the value has less of the stack left."""

ALWAYS_SHALLOW_BYTES = 2 * MAX_DEPTH
"""Bytes of a text that is too short to close what it would have to open."""

_OPENING, _CLOSING = b"[{", b"]}"
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
"""Brackets, and strings, so that the brackets inside them are passed over."""


def is_too_deep(text: bytes | str) -> bool:
    """Whether a valid JSON text has more than `DEEPEST` objects and lists inside one another."""
    if len(text) <= ALWAYS_SHALLOW_BYTES:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _STRUCTURE.finditer(data):
        first = data[token.start()]
        if first in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first in _CLOSING:
            depth -= 1
    return False
