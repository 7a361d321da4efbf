"""The nesting depth of JSON: code that walks or writes a value later needs stack for it."""

from __future__ import annotations

import re

MAX_DEPTH = 200
"""A decoder stops near 1000 levels, and code that walks the value has less stack left."""

ALWAYS_SHALLOW_BYTES = 2 * MAX_DEPTH
"""A shorter text cannot close as many brackets as it would have to open."""

_OPENING, _CLOSING = b"[{", b"]}"
_STRUCTURE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
"""Brackets, and strings, whose brackets do not count."""


def is_too_deep(text: bytes | str) -> bool:
    """Return whether valid JSON nests more than `MAX_DEPTH` objects and lists."""
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
