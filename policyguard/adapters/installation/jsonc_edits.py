"""Items put into JSON with comments, and taken out: comments and form stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from policyguard.adapters.installation.jsonc import (
    Child,
    Value,
    apply_edits,
    find_comments,
    locate,
)

Path = Sequence[str | int]
"""Keys of objects and positions in lists, from the outermost value on."""


def append_item(text: str, path: Path, item: Any) -> str:
    """Return a text with an item at the end of the list at `path`; what is missing is created.

    `jsonc.parse` has accepted the text, and what is there on the path has the right kind.
    """
    found, rest = locate(text), [*path]
    while rest and (child := _child(found, rest[0])) is not None:
        found = child.value
        del rest[0]
    if not rest:
        return _insert(text, found, None, item)
    key, *inner = rest
    value: Any = [item]
    for outer in reversed(inner):
        value = {outer: value}
    return _insert(text, found, str(key), value)


def append_member(text: str, member: Mapping[str, Any]) -> str:
    """Return a text with a member, which it has not yet, at the end of the outermost object."""
    ((key, value),) = member.items()
    return _insert(text, locate(text), key, value)


def remove_at(text: str, path: Path, *, is_alone: bool = False) -> str:
    """Return a text without what is at `path`, and without what holds nothing else.

    What holds a comment stays, and so does the outermost value; with `is_alone` all that holds it.
    """
    steps: list[tuple[Value, Child]] = []
    found = locate(text)
    for key in path:
        child = _child(found, key)
        assert child is not None  # noqa: S101 - the caller has seen it
        steps.append((found, child))
        found = child.value
    container, child = steps.pop()
    if is_alone:
        steps.clear()
    while steps and len(container.children) == 1 and not _has_comments_beside(text, *steps[-1]):
        container, child = steps.pop()
    return _remove(text, container, child)


def has_comments(text: str, path: Path) -> bool:
    """Whether there is a comment in what is at `path`."""
    found = locate(text)
    for key in path:
        child = _child(found, key)
        assert child is not None  # noqa: S101 - the caller has seen it
        found = child.value
    return bool(find_comments(text, found.start, found.end))


def _child(value: Value, key: str | int) -> Child | None:
    if isinstance(key, str):
        return value.member(key)
    return value.children[key] if key < len(value.children) else None


def _has_comments_beside(text: str, _: Value, outer: Child) -> bool:
    """Whether a value that holds one other has comments around that."""
    (inner,) = outer.value.children
    parts = ((outer.start, inner.start), (inner.value.end, outer.value.end))
    return any(find_comments(text, *part) for part in parts)


def _remove(text: str, container: Value, child: Child) -> str:
    index = container.children.index(child)
    before = container.children[index - 1] if index else None
    comma = child.comma if child.comma >= 0 or before is None else before.comma
    start = container.start + 1 if before is None else before.comma + 1
    start = max([start, *(end for _, end in find_comments(text, start, child.start))])
    rest = text[child.value.end : container.end].lstrip(" \t").removeprefix(",")
    gap = text[start : child.start]
    # A comment to the end of its line must not swallow what follows.
    kept = gap if "\n" in gap and not re.match(r"[ \t]*\r?\n", rest) else ""
    edits = [(start, child.value.end, kept)]
    return apply_edits(text, [*edits, (comma, comma + 1, "")] if comma >= 0 else edits)


def _insert(text: str, container: Value, key: str | None, value: Any) -> str:
    """Put a member or an item at a container's end, on lines of its own where others are."""
    close = container.end - 1
    end = len(text[:close].rstrip())
    last = container.children[-1] if container.children else None
    root = locate(text)
    is_inline = last is not None and container.start != root.start
    if is_inline and "\n" not in text[container.start : close]:
        shown = " " + _show(key, value, None)
        tail = ""
    else:
        unit = _line_indent(text, root.children[0].start) if root.children else None
        outer = _indent_of_line(text, container.start)
        indent = _line_indent(text, container.children[0].start) if last is not None else None
        indent = indent or outer + (unit or "  ")
        shown = "\n" + indent + _show(key, value, unit or "  ").replace("\n", "\n" + indent)
        tail = "" if "\n" in text[end:close] else "\n" + outer
    if last is not None and last.comma >= 0:
        shown += ","
    shown += tail
    if "\r\n" in text:
        shown = shown.replace("\n", "\r\n")
    until = close if tail else end
    if last is None or last.comma >= 0:
        return apply_edits(text, [(end, until, shown)])
    if last.value.end == end:
        return apply_edits(text, [(end, until, "," + shown)])
    return apply_edits(text, [(last.value.end, last.value.end, ","), (end, until, shown)])


def _show(key: str | None, value: Any, unit: str | None) -> str:
    shown = json.dumps(value, indent=unit, ensure_ascii=False)
    return shown if key is None else f"{json.dumps(key, ensure_ascii=False)}: {shown}"


def _line_indent(text: str, position: int) -> str | None:
    """Return the indentation of what is first in its line; None if something is before it."""
    before = text[text.rfind("\n", 0, position) + 1 : position]
    return before if "\n" in text[:position] and not before.strip() else None


def _indent_of_line(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]
