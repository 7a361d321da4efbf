"""Render the changes between two policies as text, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from policyguard.report.escape import for_markdown, for_terminal, json_document

NO_CHANGES = "no change in meaning"
UNDETERMINED = "undetermined"
"""A change that is neither tighter nor looser for every call."""
ANY = "any"
_MAX_INLINE = 60
"""Characters of a value, or of two, that stand on one line."""
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": "~"}


class PolicyChange(NamedTuple):
    """A change of an entry, with the location of the new value, or of a removed one.

    `field` is the changed value in the entry, empty for the whole entry. A `moved` entry of a
    first-match list now comes before or after another one. `direction` is empty if undetermined.
    `old_lines` and `new_lines` are the values for a person to read, empty if the flow style of
    `old` and `new` is short enough; JSON leaves them out.
    """

    entry: str
    what: Literal["added", "removed", "changed", "moved"]
    field: str
    old: str | None
    new: str | None
    direction: Literal["tighter", "looser", ""]
    file: str
    line: int
    old_lines: tuple[str, ...] = ()
    new_lines: tuple[str, ...] = ()


def render_text(changes: list[PolicyChange]) -> str:
    """Render changes as text."""
    return "\n".join(_text(changes)) if changes else NO_CHANGES


def render_json(changes: list[PolicyChange]) -> str:
    """Render changes as a JSON list."""
    return json_document([_to_json(change) for change in changes])


def render_markdown(changes: list[PolicyChange]) -> str:
    """Render changes as a table, for a pull-request comment."""
    if not changes:
        return f"{NO_CHANGES[0].upper()}{NO_CHANGES[1:]}."
    rows = ["| entry | was | is | |", "|---|---|---|---|"]
    for change in changes:
        name = f"{change.entry} {change.field}".strip()
        direction = change.direction or UNDETERMINED
        cells = [_code(name), _code(change.old), _code(change.new), direction]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*rows, "", f"{summary(changes)[0].upper()}{summary(changes)[1:]}."])


KINDS = ("looser", "tighter", UNDETERMINED, ANY)
"""The kinds of changes that `describe_failure` counts."""
FORMATS: dict[str, Callable[[list[PolicyChange]], str]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
}


def summary(changes: list[PolicyChange]) -> str:
    """Summarize the numbers of changes by direction."""
    tighter = sum(change.direction == "tighter" for change in changes)
    looser = sum(change.direction == "looser" for change in changes)
    parts = [f"{tighter} tighter", f"{looser} looser"]
    if rest := len(changes) - tighter - looser:
        parts.append(f"{rest} {UNDETERMINED}")
    return f"{len(changes)} {_noun(len(changes))} in meaning: {', '.join(parts)}"


def describe_failure(kind: str, changes: list[PolicyChange]) -> str:
    """Say how many changes are of a kind (a direction, `undetermined` or `any`); empty if none."""
    found = len(changes)
    if kind != ANY:
        found = sum((change.direction or UNDETERMINED) == kind for change in changes)
    kind = "" if kind == ANY else f"{kind} "
    return f"FAILED: {found} {kind}{_noun(found)}" if found else ""


def _noun(count: int) -> str:
    return "change" if count == 1 else "changes"


def _text(changes: list[PolicyChange]) -> Iterator[str]:
    for (entry, what), group in groupby(changes, key=lambda change: (change.entry, change.what)):
        changed = list(group)
        if not changed[0].field and _is_long(changed[0]):
            yield f"{_SIGNS[what]} {for_terminal(entry)}  ({_note(changed[0])})"
            for change in changed:
                yield from (f"    {line}".rstrip() for line in _lines(change))
            continue
        yield f"{_SIGNS[what]} {for_terminal(entry)}"
        for change in changed:
            name = f"{for_terminal(change.field)}: " if change.field else ""
            if _is_long(change):
                yield f"    {name} ({_note(change)})"
                yield from (f"      {line}".rstrip() for line in _lines(change))
            else:
                yield f"    {name}{_from_to(change)}  ({_note(change)})"
    yield ""
    yield summary(changes)


def _note(change: PolicyChange) -> str:
    return f"{change.direction or UNDETERMINED}, {for_terminal(change.file)}:{change.line}"


def _is_long(change: PolicyChange) -> bool:
    text = _from_to(change)
    has_lines = bool(change.old_lines or change.new_lines)
    return has_lines and (len(text) > _MAX_INLINE or r"\n" in text)


def _lines(change: PolicyChange) -> Iterator[str]:
    """Yield the value; a changed one as removed and added lines."""
    if change.old is None or change.new is None:
        yield from change.new_lines or change.old_lines
        return
    yield from (f"- {line}" for line in change.old_lines or [for_terminal(change.old)])
    yield from (f"+ {line}" for line in change.new_lines or [for_terminal(change.new)])


def _to_json(change: PolicyChange) -> dict[str, object]:
    plain = change._asdict()
    del plain["old_lines"], plain["new_lines"]
    return plain


def _from_to(change: PolicyChange) -> str:
    if change.old is None or change.new is None:
        return for_terminal(change.new or change.old or "")
    return f"{for_terminal(change.old)} → {for_terminal(change.new)}"


def _code(text: str | None) -> str:
    return f"<code>{for_markdown(text, 400)}</code>" if text is not None else ""
