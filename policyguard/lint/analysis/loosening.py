"""How one value of an entry is looser than another, read from the YAML of two layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.compiler.load.scalars import parse_count, parse_duration
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    descend,
    to_plain,
)
from policyguard.model.effect import Effect

_MAXIMA = (
    *("max", "calls", "tokens", "cost", "time", "concurrent", "timeout"),
    *("unchanged", "corroborate", "shrink_after"),
)
_MINIMA = ("window", "longest", "within", "cooldown")
"""How far an entry looks back, or for how long it refuses."""
_THRESHOLDS = ("ask_at", "halt_at")


def find_loosened(section: str, old: Node, new: Node) -> Iterator[tuple[str, str]]:
    """Yield each loosened key of an entry (empty for the entry itself), and how."""
    if isinstance(new, ScalarNode):
        if section == "limits" and new.text == "none" and not isinstance(old, ScalarNode):
            yield "", "it is switched off"
        elif section == "limits" and _is_larger(new, old):
            yield "", f"{_text(old)} becomes {new.text}"
        return
    if not isinstance(old, MappingNode) or not isinstance(new, MappingNode):
        return
    if section == "params":
        for key in ("min", "max"):
            before, after = old.get(key), new.get(key)
            if before is None or after is None:
                continue
            smaller, larger = (before, after) if key == "max" else (after, before)
            if _is_larger(larger, smaller):
                yield key, f"`{key}` changes from {_text(before)} to {_text(after)}"
        return
    if _text(new.get("mode")) == "observe" and _text(old.get("mode")) != "observe":
        yield "mode", "it no longer acts"
    before_effect, after_effect = _effect(old), _effect(new)
    if after_effect < before_effect:
        yield "effect" if "effect" in new else "", f"{before_effect} becomes {after_effect}"
    yield from _loosened_approval(old.get("approval"), new.get("approval"))
    is_tighter = False
    for key in (*_MAXIMA, *_THRESHOLDS):
        before, after = old.get(key), new.get(key)
        if after is not None and before is not None:
            is_tighter = is_tighter or _is_larger(before, after)
            if _is_larger(after, before):
                yield key, f"`{key}` rises from {_text(before)} to {_text(after)}"
    if not is_tighter:
        yield from _shortened(section, old, new)


def _shortened(section: str, old: MappingNode, new: MappingNode) -> Iterator[tuple[str, str]]:
    """Yield what looks back less far or is gone. With a lower maximum that may be stricter."""
    for key in _MINIMA:
        before, after = old.get(key), new.get(key)
        if after is not None and before is not None and _is_larger(before, after):
            yield key, f"`{key}` falls from {_text(before)} to {_text(after)}"
    for key in (*_THRESHOLDS, "refuse"):
        if section in ("limits", "budgets") and key in old and key not in new:
            yield "", f"`{key}: {_text(old.get(key))}` is gone"


def _loosened_approval(old: Node | None, new: Node | None) -> Iterator[tuple[str, str]]:
    if not isinstance(old, MappingNode) or not isinstance(new, MappingNode):
        return
    if _text(new.get("otherwise")) == "allow" and _text(old.get("otherwise")) != "allow":
        yield "approval", "without an approval the call runs"
    fewest = old.get("count")
    if fewest is not None and (_size(to_plain(fewest)) or 0) > (_count(new) or 0):
        yield "approval", f"fewer than {_text(fewest)} approvals are enough"


def _count(approval: MappingNode) -> float | None:
    count = approval.get("count")
    return 1 if count is None else _size(to_plain(count))


def insert_params(entry: Node, *layers: MappingNode) -> Node:
    """Return an entry with the value of each `$name`, of the first layer that sets it."""
    if isinstance(entry, MappingNode):
        return entry.with_entries(
            (key, insert_params(value, *layers)) for key, value in entry.entries
        )
    if isinstance(entry, ScalarNode) and entry.text.startswith("$"):
        for layer in layers:
            value, missing = descend(layer, ("params", entry.text[1:]))
            if isinstance(value, MappingNode):
                value, missing = descend(value, ("default",))
            if not missing:
                return value
    return entry


def list_missing(old: Node | None, new: Node | None) -> list[str]:
    """Return the items of an inherited list that a layer's list leaves out."""
    if not isinstance(old, SequenceNode) or not isinstance(new, SequenceNode):
        return []
    kept = {_text(item) for item in new.items}
    if any(text.startswith("$") for text in kept):
        return []
    return [text for item in old.items if (text := _text(item)) not in kept]


def _effect(entry: MappingNode) -> Effect:
    text = _text(entry.get("effect"))
    return Effect(text) if text in set(Effect) else Effect.BLOCK


def _is_larger(one: Node, other: Node) -> bool:
    sizes = [_size(to_plain(node)) for node in (one, other)]
    return sizes[0] is not None and sizes[1] is not None and sizes[0] > sizes[1]


def _size(value: Any) -> float | None:
    """Return a number, count or duration as a number; None for anything else."""
    if isinstance(value, str):
        found = parse_count(value)
        return parse_duration(value) if found is None else found
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(node: Node | None) -> str:
    return node.text if isinstance(node, ScalarNode) else ""
