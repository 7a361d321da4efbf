"""JSON with comments, changed in place: all that is not changed keeps its form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policyguard.adapters.installation.settings import SettingsError

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\A\ufeff|//[^\n]*?(?=\r?(?:\n|\Z))|/\*.*?\*/)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)|(?P<colon>:)
    |(?P<literal>[^\s{}\[\]:,"/]+)""",
    re.DOTALL | re.VERBOSE,
)


class Value(msgspec.Struct, eq=False):
    """Where a value is; of an object or a list also what is in it, in order."""

    start: int
    end: int = 0
    kind: str = ""
    children: list[Child] = msgspec.field(default_factory=list)

    def member(self, key: str) -> Child | None:
        """Return a member of an object; of those of one name the last, as all hosts do."""
        return next((child for child in reversed(self.children) if child.key == key), None)


class Child(msgspec.Struct, eq=False):
    """A member of an object, from its key on, or an item of a list.

    `comma` is where the comma after it is; -1 if there is none.
    """

    start: int
    key: str | None
    value: Value
    comma: int = -1


def parse(text: str) -> dict[str, Any]:
    """Return the object in a settings file; empty for no text. Raises `SettingsError`."""
    try:
        document = json.loads(_without_comments(text) or "{}", parse_constant=_reject)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"the settings are not JSON ({error}); mend them first") from None
    if not isinstance(document, dict):
        raise SettingsError("the settings are not a JSON object; mend them first")
    return document


def _reject(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def set_members(text: str, path: Sequence[str], changes: Mapping[str, Any]) -> str:
    """Return a text with members of the object at `path` set; new ones follow the first of them.

    `parse` has accepted the text, and the object is there.
    """
    found = locate(text)
    for key in path:
        found = _member(found, key).value
    edits: list[tuple[int, int, str]] = []
    for key, value in changes.items():
        shown = json.dumps(value, ensure_ascii=False)
        member = found.member(key)
        if member is not None:
            edits.append((member.value.start, member.value.end, shown))
        else:
            first = _member(found, next(iter(changes)))
            gap = _gap_before(text, first.start)
            place = first.value.end
            edits.append((place, place, f",{gap}{json.dumps(key)}: {shown}"))
    return apply_edits(text, edits)


def apply_edits(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with pieces replaced: from where, to where, by what."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _member(value: Value, key: str) -> Child:
    found = value.member(key)
    assert found is not None  # noqa: S101 - the caller has seen it
    return found


def _gap_before(text: str, position: int) -> str:
    """Return what separates a member from the one before it: a line break and indentation."""
    line = text.rfind("\n", 0, position)
    before = text[line + 1 : position]
    return text[line:position] if line >= 0 and not before.strip() else " "


def _without_comments(text: str) -> str:
    """Return the text without comments and trailing commas, all else in its place."""
    parts: list[str] = []
    comma: int | None = None
    is_first = True
    position = 0
    while (token := _TOKEN.match(text, position)) is not None:
        shown = token.group()
        if token.lastgroup == "blank":
            shown = "".join(c if c in "\r\n\t" else " " for c in shown)
        else:
            if token.lastgroup == "close" and comma is not None:
                parts[comma] = " "
            is_comma = token.lastgroup == "comma" and not is_first
            comma = len(parts) if is_comma else None
            is_first = token.lastgroup == "open"
        parts.append(shown)
        position = token.end()
    return "".join(parts).strip() + text[position:]


def has_value(text: str) -> bool:
    """Whether a text that `parse` has accepted has more than blanks and comments."""
    return bool(_without_comments(text))


def locate(text: str) -> Value:
    """Return where the values are in a text that `parse` has accepted."""
    root = Value(0)
    opened = [root]
    key: tuple[str, int] | None = None
    position = 0
    while (token := _TOKEN.match(text, position)) is not None:
        start, position = token.start(), token.end()
        kind, around = token.lastgroup, opened[-1]
        if kind == "close":
            around.end = position
            opened.pop()
        elif kind == "comma":
            around.children[-1].comma = start
        elif kind == "text" and around.kind == "{" and key is None:
            key = json.loads(token.group()), start
        elif kind in ("open", "text", "literal"):
            value = Value(start, position, token.group() if kind == "open" else "")
            name, begins = key if key is not None else (None, start)
            around.children.append(Child(begins, name, value))
            key = None
            if kind == "open":
                opened.append(value)
    return root.children[0].value


class Extension(msgspec.Struct, frozen=True):
    """What plain JSON does not have: a comment, a trailing comma or a byte order mark."""

    name: str
    line: int


def find_extensions(text: str) -> list[Extension]:
    """Return what a text has that plain JSON does not, in order."""
    found: list[Extension] = []
    comma = -1
    position = 0
    while (token := _TOKEN.match(text, position)) is not None:
        start, position = token.start(), token.end()
        kind, shown = token.lastgroup, token.group()
        if kind == "blank":
            name = "comment" if shown[0] == "/" else "byte order mark" if "\ufeff" in shown else ""
            found += [Extension(name, _line(text, start))] if name else []
            continue
        if kind == "close" and comma >= 0:
            found.append(Extension("trailing comma", _line(text, comma)))
        comma = start if kind == "comma" else -1
    return found


def find_comments(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return where the comments are that begin in a part of a text."""
    found: list[tuple[int, int]] = []
    position = 0
    while position < end and (token := _TOKEN.match(text, position)) is not None:
        if token.group()[0] == "/" and token.start() >= start:
            found.append(token.span())
        position = token.end()
    return found


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
