"""Texts whose parts come in any order, such as `ls -U`, hits of a parallel search, or a set."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern

MAX_SORTED_CHARS = 65536
"""Longer texts are compared in the order in which they come."""
_OPENING = ("[", "{", "(")
_BETWEEN_ITEMS = lazy_pattern(r"[\[\]{}(),]")
_AFTER_LINES = ", \t\r"


def sort_parts(text: str) -> str:
    """Return a text with its parts sorted, so that two with the same parts are equal.

    Parts are the items of each list in JSON; else lines, without commas at their ends; of a single
    line in brackets, what stands between commas and brackets. Only for comparison.
    """
    if len(text) > MAX_SORTED_CHARS:
        return text
    has_lines, is_opened = "\n" in text, text.startswith(_OPENING)
    if is_opened:
        try:
            return _encode(_sort_lists(msgspec.json.decode(text))).decode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # not JSON
    if has_lines:
        return "\n".join(sorted([line.rstrip(_AFTER_LINES) for line in text.split("\n")]))
    if is_opened:
        return ",".join(sorted([part.strip() for part in _BETWEEN_ITEMS.split(text)]))
    return text


def _sort_lists(value: Any) -> Any:
    if type(value) is list:
        return sorted([_sort_lists(item) for item in value], key=_encode)
    if type(value) is dict:
        return {name: _sort_lists(item) for name, item in value.items()}
    return value


_encode = msgspec.json.Encoder(order="sorted").encode
