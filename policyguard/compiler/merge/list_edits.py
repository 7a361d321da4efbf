"""Named lists that a layer changes instead of replacing: `{add: […], remove: […]}`."""

from __future__ import annotations

from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text


def apply_list_edits(
    inherited: Node | None, name: ScalarNode, edits: MappingNode
) -> tuple[SequenceNode | None, list[Diagnostic]]:
    """The inherited list with the layer's `changes`; None where nothing is inherited."""
    if not isinstance(inherited, SequenceNode):
        message = f"no list `{name.text}` is inherited that could be changed"
        unknown = "give its items: `[…]`"
        return None, [
            name.source.diagnostic("reference/unknown-list", message, name.span, hint=unknown)
        ]
    found: list[Diagnostic] = []
    items = list(inherited.items)
    for item in _edit_items(edits, "remove"):
        keep = [other for other in items if not _is_same_scalar(other, item)]
        if len(keep) == len(items):
            message = f"{quote_text(item.text)} is not in the list `{name.text}`"
            hint = did_you_mean(item.text, (o.text for o in items if isinstance(o, ScalarNode)))
            found.append(
                item.source.diagnostic("reference/not-in-list", message, item.span, hint=hint)
            )
        items = keep
    for item in _edit_items(edits, "add"):
        if not any(_is_same_scalar(other, item) for other in items):
            items.append(item)
    return inherited.with_items(items), found


def _edit_items(changes: MappingNode, key: str) -> list[ScalarNode]:
    given = changes.get(key)
    if not isinstance(given, SequenceNode):
        return []
    return [item for item in given.items if isinstance(item, ScalarNode)]


def _is_same_scalar(one: Node, other: Node) -> bool:
    if not isinstance(one, ScalarNode) or not isinstance(other, ScalarNode):
        return False
    # `1` and `true` are equal for Python.
    return type(one.value) is type(other.value) and one.value == other.value
