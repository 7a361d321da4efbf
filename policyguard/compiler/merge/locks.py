"""Locked entries: what a layer locks, and what later layers may no longer change.

A layer with `locked: true` locks every value that it gives, an entry with it only itself. What a
locked entry refers to (params, lists, patterns, tags, what the policy says of commands) is locked
with it, as it is below the lock: a change of it changes the entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policyguard.compiler.merge.lock_references import find_references
from policyguard.compiler.merge.merger import FIRST_MATCH_LISTS, is_merged_by_key
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    descend,
    get_child,
    to_plain,
)

KeyPath = tuple[str, ...]
"""The path of a value that layers replace as a whole; of a first-match list with an item's id."""

_IDENTITY = frozenset({"policyguard", "name", "description", "owner", "extends", "disable"})
"""Keys that say what a layer is; each layer has its own."""
_WITH_DEFAULTS = ("pins",)
"""A section that refuses calls even if it is empty."""


class Lock(NamedTuple):
    """Why a value is locked.

    `place` is the file and line of the lock, `file` its file. `user` is the locked entry that
    refers to the value; empty if the value itself is locked. With `is_strict` it may not be set
    even where no layer has.
    """

    file: str
    place: str
    user: str = ""
    is_strict: bool = False

    def explain(self, path: KeyPath) -> str:
        """Return why a layer may not change the value at `path`."""
        if self.user:
            return f"`{self.user}` relies on `{'.'.join(path)}`, and is locked at {self.place}"
        return f"`{entry_id(path)}` is locked at {self.place}"


Locks = dict[KeyPath, Lock]


def entry_id(path: KeyPath) -> str:
    """Return the id of the entry at a path: `limits/tools:x/repeat`."""
    if path[0] == "limits" and len(path) == 4:
        return f"limits/{path[1]}:{path[2]}/{path[3]}"
    return "/".join(path[1:] if path[:2] == ("classify", "classes") else path)


def are_nested(one: KeyPath, other: KeyPath) -> bool:
    """Whether one path is the other, or leads to a part of it."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def find_own_lock(locks: Locks, path: KeyPath) -> Lock | None:
    """Return the lock of an entry itself, or of a part of it."""
    found = (lock for other, lock in locks.items() if not lock.user and are_nested(path, other))
    return next(found, None)


def pinned_lists(locks: Locks) -> frozenset[KeyPath]:
    """Return the first-match lists whose new items go after the inherited ones.

    What a locked layer classifies stays classified, and a locked limit sees the failures that it
    saw: a later layer speaks of the rest only.
    """
    sections = {path[0] for path in locks}
    if not sections:
        return frozenset()
    counts = not sections.isdisjoint(("limits", "budgets", "learn", "outcomes"))
    return frozenset(
        path for path in FIRST_MATCH_LISTS if counts or path[0] == "classify" or path[0] in sections
    )


def add_locks(locks: Locks, layer: MappingNode, merged: MappingNode) -> Locks:
    """Return the locks with those of a layer, which was merged into `merged`."""
    is_whole = _is_true(layer.get("locked"))
    own: Locks = {}
    for path, key, value in replaced_values(layer):
        place = key if is_whole else _own_flag(layer, path, value)
        if place is not None and (path[0] != "limits" or path[-1] != "locked"):
            own[path] = Lock(place.source.file, f"{place.source.file}:{place.span.line}")
    found = {**locks, **own}
    for path, lock in own.items():
        node = value_at(merged, path)
        if node is None:
            continue
        for other, is_strict in find_references(path, node, merged):
            if other not in found:
                found[other] = Lock(lock.file, lock.place, entry_id(path), is_strict)
    return found


def without_env(tree: MappingNode, locks: Locks) -> MappingNode:
    """Return the tree without the `env` of locked params: the environment sets none of them."""
    params = tree.get("params")
    if not isinstance(params, MappingNode):
        return tree
    entries = [
        (key, _drop_env(value) if _is_own(locks, ("params", key.text)) else value)
        for key, value in params.entries
    ]
    return tree.with_entries(
        (key, params.with_entries(entries) if value is params else value)
        for key, value in tree.entries
    )


def _is_own(locks: Locks, path: KeyPath) -> bool:
    lock = locks.get(path)
    return lock is not None and not lock.user


def _drop_env(param: Node) -> Node:
    if not isinstance(param, MappingNode) or param.get("env") is None:
        return param
    return param.with_entries(item for item in param.entries if item[0].text not in ("env", "unit"))


def replaced_values(layer: MappingNode) -> Iterator[tuple[KeyPath, ScalarNode, Node]]:
    """Yield each value of a layer that replaces an inherited one as a whole: path, key, value."""
    for key, value in layer.entries:
        if key.text not in _IDENTITY:
            yield from _values_at((key.text,), key, value)


def _values_at(
    path: KeyPath, key: ScalarNode, value: Node
) -> Iterator[tuple[KeyPath, ScalarNode, Node]]:
    is_map = isinstance(value, MappingNode) and is_merged_by_key(path)
    if isinstance(value, MappingNode) and is_map and (value.entries or path != _WITH_DEFAULTS):
        for inner, child in value.entries:
            yield from _values_at((*path, inner.text), inner, child)
    elif isinstance(value, SequenceNode) and path in FIRST_MATCH_LISTS:
        for item in value.items:
            name = get_child(item, "id") or get_child(item, "class")
            if isinstance(name, ScalarNode):
                yield (*path, name.text), name, item
            else:
                yield (*path, ""), key, item
    else:
        yield path, key, value


def _own_flag(layer: MappingNode, path: KeyPath, value: Node) -> Node | None:
    """Return the `locked: true` of an entry, or of the level of limits that it is in."""
    flags = [value.get("locked") if isinstance(value, MappingNode) else None]
    if path[0] == "limits":
        level = descend(layer, path[:-1])[0]
        flags.append(level.get("locked") if isinstance(level, MappingNode) else None)
    return next((flag for flag in flags if _is_true(flag)), None)


def value_at(tree: MappingNode, path: KeyPath) -> Node | None:
    """Return the value at a path, or the items of a first-match list with an id."""
    if path[:-1] in FIRST_MATCH_LISTS:
        node, rest = descend(tree, path[:-1])
        items = node.items if not rest and isinstance(node, SequenceNode) else ()
        for item in items:
            name = get_child(item, "id") or get_child(item, "class")
            if isinstance(name, ScalarNode) and name.text == path[-1]:
                return item
        return None
    node, rest = descend(tree, path)
    return None if rest else node


def _is_true(node: Node | None) -> bool:
    return node is not None and to_plain(node) is True
