"""An entry that repeats what it inherits.

It changes nothing today, and it hides later improvements of the pack. If that is the intention,
say so in an ignore comment.

Avoid:

    extends: [core]
    limits: {default: {failures: {max: 8, same: error, per: turn}}}     # the same as in core

Prefer:

    extends: [core]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.merge.merger import is_merged_by_key
from policyguard.engines.yaml_tree import MappingNode, Node, Path, SequenceNode, to_plain
from policyguard.lint.analysis.yaml_entries import entry_id, removal_edits
from policyguard.lint.rule import Finding, LintContext

_DESCRIPTIVE_KEYS = frozenset({"policyguard", "name", "description", "owner", "extends", "disable"})
"""Keys that describe the file itself."""
_ENTRY_SECTIONS = frozenset(
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
"""Sections whose entries override one by one. In other sections, a repeated setting beside a
changed one may help the reader."""
_LIST_SECTIONS = frozenset({"signatures", "blame"})


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries and sections of the top layer that equal what they replace."""
    top, inherited = context.merged.top_layer, context.merged.inherited
    for key, value in top.entries:
        old = inherited.get(key.text)
        if old is None or key.text in _DESCRIPTIVE_KEYS:
            continue
        for path in _redundant(value, old, (key.text,)):
            message = "this repeats the inherited value and changes nothing"
            span = find_span(top, path, key=True)
            yield Finding(span, message, "remove it", removal_edits(top, path))


def _redundant(value: Node, old: Node, path: tuple[str, ...]) -> Iterator[Path]:
    """Yield the paths at or below `path` whose values equal the inherited ones."""
    if (
        path[0] in _LIST_SECTIONS
        and isinstance(value, SequenceNode)
        and isinstance(old, SequenceNode)
    ):
        inherited = {entry_id(item): to_plain(item) for item in old.items}
        for index, item in enumerate(value.items):
            if inherited.get(entry_id(item)) == to_plain(item):
                yield (*path, index)
    elif (
        path[0] not in _ENTRY_SECTIONS
        or not isinstance(value, MappingNode)
        or not is_merged_by_key(path)
    ):
        if _is_equal(value, old, path):
            yield path
    elif isinstance(old, MappingNode):
        for key, child in value.entries:
            replaced = old.get(key.text)
            if replaced is not None:
                yield from _redundant(child, replaced, (*path, key.text))


def _is_equal(value: Node, old: Node, path: tuple[str, ...]) -> bool:
    """Return whether merging `value` over `old` changes nothing."""
    if not isinstance(value, MappingNode) or not is_merged_by_key(path):
        return bool(to_plain(value) == to_plain(old))
    if not isinstance(old, MappingNode) or not value.entries:
        return False
    return all(
        key.text in old and _is_equal(child, old.get(key.text) or child, (*path, key.text))
        for key, child in value.entries
    )
