"""An entry that is inherited as it stands.

It changes nothing today, and keeps what is inherited from changing tomorrow: who mends the pack
does not mend this copy. Where that is the point, say so in an ignore comment.

Avoid:

    extends: [core]
    limits: {default: {failures: {max: 8, same: error, per: turn}}}     # as core has it

Prefer:

    extends: [core]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.merge.merger import is_merged_by_key
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    to_plain,
)
from policyguard.lint.analysis.entry_removal import removal_edits
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding

_OWN = frozenset({"policyguard", "name", "description", "owner", "extends", "disable"})
"""What each file says of itself."""
_ENTRIES = frozenset(
    {
        "params",
        "tags",
        "lists",
        "patterns",
        "marks",
        "limits",
        "budgets",
        "rules",
        "result_rules",
        "exceptions",
    }
)
"""Sections of entries, each an override by itself. Others hold settings, which explain each other:
one that is as inherited beside one that is not may be there for the reader."""
_BY_ID = frozenset({"signatures", "blame"})


def check(subject: LintContext) -> Iterator[Finding]:
    """Entries and sections of the top layer that are equal to what they replace."""
    top, inherited = subject.merged.top_layer, subject.merged.inherited
    for key, value in top.entries:
        old = inherited.get(key.text)
        if old is None or key.text in _OWN:
            continue
        for path in _idle(value, old, (key.text,)):
            message = "this is inherited as it stands: the override changes nothing"
            span = find_span(top, path, key=True)
            yield Finding(span, message, "take it out", removal_edits(top, path))


def _idle(value: Node, old: Node, path: tuple[str, ...]) -> Iterator[Path]:
    """The paths of what is equal to what is inherited, below `path` or that itself."""
    if path[0] in _BY_ID and isinstance(value, SequenceNode) and isinstance(old, SequenceNode):
        known = {_id(item): to_plain(item) for item in old.items}
        for number, item in enumerate(value.items):
            if known.get(_id(item)) == to_plain(item):
                yield (*path, number)
    elif (
        path[0] not in _ENTRIES or not isinstance(value, MappingNode) or not is_merged_by_key(path)
    ):
        if _is_equal(value, old, path):
            yield path
    elif isinstance(old, MappingNode):
        for key, inner in value.entries:
            before = old.get(key.text)
            if before is not None:
                yield from _idle(inner, before, (*path, key.text))


def _is_equal(value: Node, old: Node, path: tuple[str, ...]) -> bool:
    """Whether laying `value` over `old` changes nothing."""
    if not isinstance(value, MappingNode) or not is_merged_by_key(path):
        return bool(to_plain(value) == to_plain(old))
    if not isinstance(old, MappingNode) or not value.entries:
        return False
    return all(
        key.text in old and _is_equal(inner, old.get(key.text) or inner, (*path, key.text))
        for key, inner in value.entries
    )


def _id(item: Node) -> str | None:
    found = item.get("id") if isinstance(item, MappingNode) else None
    return found.text if isinstance(found, ScalarNode) else None
