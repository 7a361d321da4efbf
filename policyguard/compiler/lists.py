"""Named lists that a layer changes instead of replacing: `{add: […], remove: […]}`."""

from __future__ import annotations

from policyguard.engines.yaml_tree import Mapping, Node, Scalar, Sequence
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quoted


def change(
    inherited: Node | None, name: Scalar, changes: Mapping
) -> tuple[Sequence | None, list[Diagnostic]]:
    """The inherited list with the layer's `changes`; None where nothing is inherited."""
    if not isinstance(inherited, Sequence):
        message = f"no list `{name.text}` is inherited that could be changed"
        unknown = "give its items: `[…]`"
        return None, [
            name.source.diagnostic("reference/unknown-list", message, name.span, hint=unknown)
        ]
    found: list[Diagnostic] = []
    items = list(inherited.items)
    for item in _items(changes, "remove"):
        keep = [other for other in items if not _same(other, item)]
        if len(keep) == len(items):
            message = f"{quoted(item.text)} is not in the list `{name.text}`"
            hint = did_you_mean(item.text, (o.text for o in items if isinstance(o, Scalar)))
            found.append(
                item.source.diagnostic("reference/not-in-list", message, item.span, hint=hint)
            )
        items = keep
    for item in _items(changes, "add"):
        if not any(_same(other, item) for other in items):
            items.append(item)
    return inherited.with_items(items), found


def _items(changes: Mapping, key: str) -> list[Scalar]:
    given = changes.get(key)
    if not isinstance(given, Sequence):
        return []
    return [item for item in given.items if isinstance(item, Scalar)]


def _same(one: Node, other: Node) -> bool:
    if not isinstance(one, Scalar) or not isinstance(other, Scalar):
        return False
    # `1` and `true` are equal for Python.
    return type(one.value) is type(other.value) and one.value == other.value
