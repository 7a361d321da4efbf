"""Changes of pinned tools as text and JSON: words removed and added, odd characters named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from policyguard.model.pins import PartChange, PinWarning, ToolChange
from policyguard.report.escape import for_terminal, json_document
from policyguard.report.odd_characters import mark_odd_characters

_SIGNS = {"new": "+", "changed": "~", "removed": "-"}
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_WORDS = 4000
"""Longer texts are not compared word by word, which would take long."""
_CONTEXT = 6
"""Unchanged words that are shown beside changed ones."""
_MAX_SHOWN = 2000
"""Characters of one text that are shown."""


def render_text(changes: Sequence[ToolChange], warnings: Sequence[PinWarning]) -> str:
    """Return changes and warnings as text for a terminal."""
    return "\n".join([*_change_lines(changes), *_warning_lines(warnings), summary(changes)])


def render_json(changes: Sequence[ToolChange], warnings: Sequence[PinWarning]) -> str:
    """Return changes and warnings as JSON."""
    document = {
        "changes": [msgspec.to_builtins(change) for change in changes],
        "warnings": [msgspec.to_builtins(warning) for warning in warnings],
    }
    return json_document(document)


def summary(changes: Sequence[ToolChange]) -> str:
    """Return how many tools are new, changed and removed."""
    if not changes:
        return "no changes: all tools are as they were pinned"
    counts = {kind: sum(one.kind == kind for one in changes if one.tool) for kind in _SIGNS}
    parts = [f"{count} {kind}" for kind, count in counts.items() if count]
    if any(not one.tool for one in changes):
        parts.append("the server itself changed")
    return f"tools: {', '.join(parts)}"


def diff_words(old: str, new: str) -> str:
    """Return two texts as one: `[-removed-]` and `{+added+}` words, the rest shortened."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(before), len(after)) > _MAX_WORDS:
        return f"[-{_shorten(old)}-]{{+{_shorten(new)}+}}"
    shown: list[str] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        removed, added = "".join(before[start:end]), "".join(after[new_start:new_end])
        if kind == "equal":
            shown.append(_shorten_equal(before[start:end]))
            continue
        if removed:
            shown.append(f"[-{_show(removed)}-]")
        if added:
            shown.append(f"{{+{_show(added)}+}}")
    return "".join(shown)


def _change_lines(changes: Sequence[ToolChange]) -> Iterator[str]:
    for change in changes:
        name = f"{change.server}/{change.tool}" if change.tool else f"server {change.server}"
        yield f"{_SIGNS[change.kind]} {_show(name)}"
        for part in change.parts:
            yield from (f"    {line}" for line in _part_lines(part))


def _part_lines(part: PartChange) -> Iterator[str]:
    head = f"{_show(part.part)}: {part.text}"
    if part.before is None and part.after is None:
        yield head
    elif part.before is None or part.after is None:
        yield f"{head}: {_show(part.before or part.after or '')}"
    else:
        yield f"{head}: {diff_words(part.before, part.after)}"


def _warning_lines(warnings: Sequence[PinWarning]) -> Iterator[str]:
    for warning in warnings:
        yield f"! {_show(f'{warning.server}/{warning.tool}')}: {warning.part}: {warning.text}"


def _shorten_equal(words: list[str]) -> str:
    if len(words) <= 2 * _CONTEXT:
        return _show("".join(words))
    first, last = "".join(words[:_CONTEXT]), "".join(words[-_CONTEXT:])
    return f"{_show(first)}…{_show(last)}"


def _show(text: str) -> str:
    """Return untrusted text with odd characters named, on one line."""
    return for_terminal(mark_odd_characters(_shorten(text)).replace("\n", "⏎"))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"
