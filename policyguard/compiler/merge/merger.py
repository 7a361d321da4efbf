"""How a layer is laid over what it inherits.

Sections and maps of entries are merged key by key, and what stands under a key is replaced as a
whole: a rule is never half of one layer and half of another. In a first-match list an entry with
a known id replaces it in its place; new ones go before the inherited, so that they are asked
first. Classes and envelopes have no id, and always go before. Everything else is replaced. Of two
keys that exclude each other the layer's takes the place of the inherited one.
"""

from __future__ import annotations

from policyguard.compiler.merge.list_edits import apply_list_edits
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Diagnostic

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
        "classify shell options",
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
        "journal",
        "bounds",
    )
)
FIRST_MATCH_LISTS = frozenset(
    {("classify", "classes"), ("outcomes", "envelope"), ("signatures",), ("blame",)}
)
"""Lists of which an item replaces the inherited one with its id."""
_EXCLUSIVE_KEYS: dict[tuple[str, ...], str] = {("learn", "ban"): "key", ("learn", "key"): "ban"}
"""Keys, each with the one that says the same in another way."""
_LAYER_ONLY_KEYS = frozenset({"extends", "disable"})
"""Keys that say something about a layer itself and are not inherited."""


def merge_layer(inherited: MappingNode, layer: MappingNode) -> tuple[MappingNode, list[Diagnostic]]:
    """Lay `layer` over `inherited`. Both are valid as far as the schema can tell."""
    merger = _Merger()
    own = layer.with_entries(
        (key, value) for key, value in layer.entries if key.text not in _LAYER_ONLY_KEYS
    )
    return merger.merge_maps(inherited, own, ()), merger.diagnostics


class _Merger:
    def __init__(self) -> None:
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
                    entries.pop("except", None)  # what only a ban of targets leaves alone
            old = inherited.get(key.text)
            new = self._merge_value(old, key, value, (*path, key.text))
            if new is not None:
                entries[key.text] = (key, new)
        return layer.with_entries(entries.values())

    def _merge_value(
        self, old: Node | None, key: ScalarNode, new: Node, path: tuple[str, ...]
    ) -> Node | None:
        """What stands under a key afterwards; None to leave what is there."""
        if path[0] == "lists" and len(path) == 2 and isinstance(new, MappingNode):
            changed, found = apply_list_edits(old, key, new)
            self.diagnostics += found
            return changed
        if isinstance(new, MappingNode) and is_merged_by_key(path):
            base = old if isinstance(old, MappingNode) else new.with_entries(())
            return self.merge_maps(base, new, path)
        if (
            path in FIRST_MATCH_LISTS
            and isinstance(old, SequenceNode)
            and isinstance(new, SequenceNode)
        ):
            return _merge_first_match(old, new)
        return new


def is_merged_by_key(path: tuple[str, ...]) -> bool:
    """Whether the map at `path` is merged key by key; any other value is replaced as a whole."""
    return path in _MERGED_BY_KEY or (*path[:-1], "*") in _MERGED_BY_KEY


def _merge_first_match(inherited: SequenceNode, layer: SequenceNode) -> SequenceNode:
    known = {identity for item in inherited.items if (identity := _item_id(item))}
    replacing = {identity: item for item in layer.items if (identity := _item_id(item)) in known}
    fresh = [item for item in layer.items if _item_id(item) not in replacing]
    kept = [replacing.get(_item_id(item) or "", item) for item in inherited.items]
    return layer.with_items([*fresh, *kept])


def _item_id(item: Node) -> str | None:
    found = item.get("id") if isinstance(item, MappingNode) else None
    return found.text if isinstance(found, ScalarNode) else None
