"""Merge a layer into what it inherits.

Sections and maps of entries merge key by key, and a layer's entry replaces the inherited one as a
whole: a rule never mixes two layers. Only a param keeps its inherited `min` and `max`. In a
first-match list an entry with a known id replaces it in place; new ones go before the inherited,
so that they match first; above a lock they go after. Classes and envelopes have no id: all are
new. The lists of `classify.shell` are added to, unless it says `replace: true`. Everything else is
replaced, and of two exclusive keys the layer's replaces the inherited one.
"""

from __future__ import annotations

from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode, to_plain
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text

_MERGED_BY_KEY: frozenset[tuple[str, ...]] = frozenset(
    tuple(path.split())
    for path in (
        "",
        "params",
        "tags",
        "lists",
        "patterns",
        "classify",
        "classify shell",
        "classify shell programs",
        "classify shell wrappers",
        "classify shell code",
        "classify shell bounds",
        "classify fingerprint",
        "classify fingerprint tolerance",
        "outcomes",
        "outcomes meta",
        "marks",
        "limits",
        "limits default",
        "limits classes",
        "limits classes *",
        "limits tools",
        "limits tools *",
        "budgets",
        "learn",
        "learn weaken",
        "learn parameters",
        "radius",
        "progress",
        "rules",
        "result_rules",
        "exceptions",
        "pins",
        "approvals",
        "approvals webhook",
        "journal",
        "bounds",
    )
)
FIRST_MATCH_LISTS = frozenset(
    {("classify", "classes"), ("outcomes", "envelope"), ("signatures",), ("blame",)}
)
"""Lists in which an item replaces the inherited one with the same id."""
_ADDITIVE_SECTION = ("classify", "shell")
"""The section whose lists a layer adds to: with fewer names, inherited rules see fewer calls."""
_EXCLUSIVE_KEYS: dict[tuple[str, ...], str] = {("learn", "ban"): "key", ("learn", "key"): "ban"}
"""Keys, each with the key that it excludes."""
_LAYER_ONLY_KEYS = frozenset({"extends", "disable"})
"""Keys of the layer itself, which are not inherited."""


def merge_layer(
    inherited: MappingNode,
    layer: MappingNode,
    pinned: frozenset[tuple[str, ...]] = frozenset(),
) -> tuple[MappingNode, list[Diagnostic]]:
    """Merge `layer` into `inherited`; both are valid against the schema.

    New items of `pinned` first-match lists go after the inherited.
    """
    merger = _Merger(pinned)
    own = layer.with_entries(
        (key, value) for key, value in layer.entries if key.text not in _LAYER_ONLY_KEYS
    )
    return merger.merge_maps(inherited, own, ()), merger.diagnostics


class _Merger:
    def __init__(self, pinned: frozenset[tuple[str, ...]]) -> None:
        self._pinned = pinned
        self.diagnostics: list[Diagnostic] = []

    def merge_maps(
        self, inherited: MappingNode, layer: MappingNode, path: tuple[str, ...]
    ) -> MappingNode:
        entries: dict[str, tuple[ScalarNode, Node]] = {
            key.text: (key, value) for key, value in inherited.entries
        }
        for key, value in layer.entries:
            if (other := _EXCLUSIVE_KEYS.get((*path, key.text))) is not None:
                entries.pop(other, None)
                of_targets = isinstance(value, ScalarNode) and value.text == "target"
                if not of_targets and layer.get("except") is None:
                    entries.pop("except", None)  # applies to target bans only
            old = inherited.get(key.text)
            new = self._merge_value(old, key, value, (*path, key.text))
            if new is not None:
                entries[key.text] = (key, new)
        return layer.with_entries(entries.values())

    def _merge_value(
        self, old: Node | None, key: ScalarNode, new: Node, path: tuple[str, ...]
    ) -> Node | None:
        """Return the merged value of a key; None to keep the inherited one."""
        if path[0] == "lists" and len(path) == 2 and isinstance(new, MappingNode):
            changed, found = _apply_list_edits(old, key, new)
            self.diagnostics += found
            return changed
        if path[0] == "params" and len(path) == 2 and isinstance(old, MappingNode):
            return _keep_bounds(old, new)
        if isinstance(new, MappingNode) and is_merged_by_key(path):
            base = old if isinstance(old, MappingNode) else new.with_entries(())
            if path == _ADDITIVE_SECTION and (replaces := new.get("replace")) is not None:
                base = new.with_entries(()) if to_plain(replaces) is True else base
                new = new.with_entries(item for item in new.entries if item[0].text != "replace")
            return self.merge_maps(base, new, path)
        if isinstance(old, SequenceNode) and isinstance(new, SequenceNode):
            if path[:2] == _ADDITIVE_SECTION:
                return _add_items(old, new)
            if path in FIRST_MATCH_LISTS:
                return _merge_first_match(old, new, goes_after=path in self._pinned)
        return new


def is_merged_by_key(path: tuple[str, ...]) -> bool:
    """Return whether the map at `path` merges key by key instead of being replaced."""
    return path in _MERGED_BY_KEY or (*path[:-1], "*") in _MERGED_BY_KEY


def _keep_bounds(inherited: MappingNode, param: Node) -> Node:
    """Return a layer's param with the inherited `min` and `max`, unless it sets them itself."""
    bounds = [item for item in inherited.entries if item[0].text in ("min", "max")]
    if isinstance(param, MappingNode):
        own = {key.text for key, _ in param.entries}
        kept = [item for item in bounds if item[0].text not in own]
        return param.with_entries([*param.entries, *kept])
    default = next((key for key, _ in inherited.entries if key.text == "default"), None)
    return inherited.with_entries([(default, param), *bounds]) if default and bounds else param


def _add_items(inherited: SequenceNode, layer: SequenceNode) -> SequenceNode:
    known = [item for item in inherited.items if isinstance(item, ScalarNode)]
    new = [item for item in layer.items if not any(_is_same_scalar(item, old) for old in known)]
    return layer.with_items([*inherited.items, *new])


def _merge_first_match(
    inherited: SequenceNode, layer: SequenceNode, *, goes_after: bool
) -> SequenceNode:
    known = {identity for item in inherited.items if (identity := _item_id(item))}
    replacing = {identity: item for item in layer.items if (identity := _item_id(item)) in known}
    fresh = [item for item in layer.items if _item_id(item) not in replacing]
    kept = [replacing.get(_item_id(item) or "", item) for item in inherited.items]
    return layer.with_items([*kept, *fresh] if goes_after else [*fresh, *kept])


def _item_id(item: Node) -> str | None:
    found = item.get("id") if isinstance(item, MappingNode) else None
    return found.text if isinstance(found, ScalarNode) else None


def _apply_list_edits(
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
