"""JSON with comments, changed in place: all that is not changed keeps its form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policyguard.adapters.installation.settings import SettingsError

_TOKEN = re.compile(
    r"""(?P<blank>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)|(?P<colon>:)
    |(?P<literal>[^\s{}\[\]:,"/]+)""",
    re.DOTALL | re.VERBOSE,
)


class _Value(msgspec.Struct, eq=False):
    """Where a value is. `members` are those of an object: where each begins, and its value."""

    start: int
    end: int = 0
    members: dict[str, tuple[int, _Value]] | None = None


def parse(text: str) -> dict[str, Any]:
    """Return the object in a settings file; empty for no text. Raises `SettingsError`."""
    try:
        document = json.loads(_without_comments(text) or "{}")
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"the settings are not JSON ({error}); mend them first") from None
    if not isinstance(document, dict):
        raise SettingsError("the settings are not a JSON object; mend them first")
    return document


def set_members(text: str, path: Sequence[str], changes: Mapping[str, Any]) -> str:
    """Return a text with members of the object at `path` set; new ones follow the first of them.

    `parse` has accepted the text, and the object is there.
    """
    found = _locate(text)
    for key in path:
        assert found.members is not None  # noqa: S101 - the caller has seen the object
        found = found.members[key][1]
    members = found.members
    assert members is not None  # noqa: S101 - as above
    edits: list[tuple[int, int, str]] = []
    for key, value in changes.items():
        shown = json.dumps(value, ensure_ascii=False)
        if key in members:
            place = members[key][1]
            edits.append((place.start, place.end, shown))
        else:
            first, beside = members[next(iter(changes))]
            gap = _gap_before(text, first)
            edits.append((beside.end, beside.end, f",{gap}{json.dumps(key)}: {shown}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _gap_before(text: str, position: int) -> str:
    """Return what separates a member from the one before it: a line break and indentation."""
    line = text.rfind("\n", 0, position)
    before = text[line + 1 : position]
    return text[line:position] if line >= 0 and not before.strip() else " "


def _without_comments(text: str) -> str:
    """Return the text without comments and trailing commas, all else in its place."""
    parts: list[str] = []
    comma: int | None = None
    position = 0
    while (token := _TOKEN.match(text, position)) is not None:
        shown = token.group()
        if token.lastgroup == "blank":
            shown = "".join(c if c in "\r\n\t" else " " for c in shown)
        else:
            if token.lastgroup == "close" and comma is not None:
                parts[comma] = " "
            comma = len(parts) if token.lastgroup == "comma" else None
        parts.append(shown)
        position = token.end()
    return "".join(parts).strip(" ") + text[position:]


def _locate(text: str) -> _Value:
    """Return where the values are in a text that is known to be JSON with comments."""
    root = _Value(0)
    opened = [root]
    key: tuple[str, int] | None = None
    last: tuple[str, int] | None = None
    position = 0
    while (token := _TOKEN.match(text, position)) is not None:
        start, position = token.start(), token.end()
        kind, around = token.lastgroup, opened[-1]
        if kind == "close":
            around.end = position
            opened.pop()
        elif kind == "colon":
            key = last
        elif kind == "open" or kind == "text" or kind == "literal":
            if kind == "text":
                last = json.loads(token.group()), start
            if kind == "text" and around.members is not None and key is None:
                continue  # a key itself
            value = _Value(start, position, {} if token.group() == "{" else None)
            if around.members is not None and key is not None:
                around.members[key[0]] = key[1], value
                key = None
            if kind == "open":
                opened.append(value)
                if len(opened) == 2:
                    root = value
    return root
