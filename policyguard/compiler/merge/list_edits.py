"""Apply `{add: […], remove: […]}` to an inherited list."""

from __future__ import annotations

from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text


def apply_list_edits(
    inherited: Node | None, name: ScalarNode, edits: MappingNode
) -> tuple[SequenceNode | None, list[Diagnostic]]:
    """Return the inherited list with a layer's edits; None if there is none."""
    if not isinstance(inherited, SequenceNode):
        message = f"there is no inherited list `{name.text}` to change"
        found = name.source.diagnostic(
            "reference/unknown-list", message, name.span, hint="list its items: `[…]`"
        )
        return None, [found]
    diagnostics: list[Diagnostic] = []
    items = list(inherited.items)
    for item in _edit_items(edits, "remove"):
        kept = [other for other in items if not _is_same_scalar(other, item)]
        if len(kept) == len(items):
            message = f"{quote_text(item.text)} is not in the list `{name.text}`"
            hint = did_you_mean(item.text, (o.text for o in items if isinstance(o, ScalarNode)))
            diagnostics.append(
                item.source.diagnostic("reference/not-in-list", message, item.span, hint=hint)
            )
        items = kept
    for item in _edit_items(edits, "add"):
        if not any(_is_same_scalar(other, item) for other in items):
            items.append(item)
    return inherited.with_items(items), diagnostics


def _edit_items(edits: MappingNode, key: str) -> list[ScalarNode]:
    items = edits.get(key)
    if not isinstance(items, SequenceNode):
        return []
    return [item for item in items.items if isinstance(item, ScalarNode)]


def _is_same_scalar(one: Node, other: Node) -> bool:
    if not isinstance(one, ScalarNode) or not isinstance(other, ScalarNode):
        return False
    # `1 == True` in Python.
    return type(one.value) is type(other.value) and one.value == other.value
