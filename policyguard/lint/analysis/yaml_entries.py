"""Find and remove entries in YAML files."""

from __future__ import annotations

from policyguard.engines.yaml_comments import find_comments
from policyguard.engines.yaml_tree import MappingNode, Node, Path, ScalarNode, SequenceNode, descend
from policyguard.model.diagnostic import Edit


def removal_edits(root: MappingNode, path: Path) -> tuple[Edit, ...]:
    """Return the edit that removes the lines of the entry at `path`.

    Return nothing if the entry shares its lines with something else, if a comment is in or above
    its lines, or if the section would be left empty.
    """
    parent, rest = descend(root, path[:-1])
    source = root.source
    if rest or (isinstance(parent, SequenceNode) and len(parent.items) < 2):
        return ()
    step = path[-1]
    if isinstance(parent, MappingNode) and isinstance(step, str) and len(parent.entries) > 1:
        value = parent.get(step)
        start, lead = parent.key_node(step).start, ""
    elif isinstance(parent, SequenceNode) and isinstance(step, int):
        value = parent.items[step]
        start, lead = value.start, "-"
    else:
        return ()
    if value is None or value.source is not source:
        return ()
    text = source.text
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", max(value.end, start))
    last = len(text) if last < 0 else last + 1
    above = text.rfind("\n", 0, max(first - 1, 0)) + 1
    if any(above <= comment.start < last for comment in find_comments(root)):
        return ()
    if text[first:start].strip() != lead or text[max(value.end, start) : last].strip():
        return ()
    return (Edit(source.span(first, last), ""),)


def entry_id(item: Node) -> str:
    """Return the `id` of an entry, or an empty text."""
    value = item.get("id") if isinstance(item, MappingNode) else None
    return value.text if isinstance(value, ScalarNode) else ""
