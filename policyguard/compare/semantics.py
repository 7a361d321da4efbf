"""A canonical form of policies: entries that treat all calls alike compare as equal.

Order is kept only where it matters, defaults are filled in, durations are numbers, and expressions
are normalized syntax trees. A value that the environment can change differs from a fixed value.
Names, descriptions, metadata and examples are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingType
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from policyguard.cel.syntax.ast import Expr, Logic, TextSpan
from policyguard.cel.syntax.parse import parse
from policyguard.compare.list_order import order_sensitive_lists
from policyguard.compiler.build.entry_paths import level_path
from policyguard.compiler.load import scalars
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.compiler.merge.params import default_value
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    get_child,
)
from policyguard.model.entry import Selector
from policyguard.model.marks import Mark, MarkEvent
from policyguard.model.policy import Policy, Radius
from policyguard.pins.definition import hash_tool

FieldPath = tuple[str, ...]
"""The path from an entry to one of its values; empty if the entry is the value."""

FieldValues = MappingType[FieldPath, Any]
"""The values of an entry. Missing values are not set."""

_IGNORED_FIELDS = frozenset(
    {"id", "owner", "severity", "docs", "labels", "reason", "examples", "warn_before"}
)
_CEL_FIELDS = frozenset(
    {"when", "unless", "sum", "distinct", "key", "keys", "failed_when", "scope_key", "count_by"}
)
PINNED_TOOLS: Path = ("pins", "lock")
"""Under which the pinned tools stand, by server and name."""
_ORDERED_FIELDS = frozenset({"schedule", "arguments", "keys"})
"""Lists whose order matters."""


class SelectedItems(NamedTuple):
    """The items of a selector, or its complement if `outside`."""

    items: frozenset[str]
    outside: bool


class NormalizedExpression(NamedTuple):
    """An expression as a tree of tuples."""

    tree: tuple[Any, ...]


class ParamValue(NamedTuple):
    """The current value of something set by `params` that the environment can change."""

    value: Any
    params: frozenset[str]


class EntrySemantics(NamedTuple):
    """One entry: its path in the merged policy, and its values."""

    path: Path
    fields: dict[FieldPath, Any]


class PolicySemantics(NamedTuple):
    """All entries by id, and the ids of each first-match list in order."""

    entries: dict[str, EntrySemantics]
    first_match_order: dict[str, tuple[str, ...]]


def read_semantics(
    policy: Policy, merged: MergedPolicy, trees: Iterable[Expr], params: frozenset[str]
) -> PolicySemantics:
    """Return a policy's semantics. Values set by `params` become `ParamValue`s.

    `trees` is its CEL.
    """
    entries = dict(_read_entries(policy, merged, trees))
    for entry in entries.values():
        whole = locate_value(merged, entry.path, ()).node
        if whole is None or params.isdisjoint(_referenced_params(whole)):
            continue
        for field, value in entry.fields.items():
            node = locate_value(merged, entry.path, field).node
            if node is not None and (read := params & _referenced_params(node)):
                entry.fields[field] = ParamValue(value, read)
    orders = {
        section: tuple(id_ for id_ in entries if id_.startswith(f"{section}/"))
        for section in ("classes", "envelope", "signatures", "blame")
    }
    return PolicySemantics(entries, orders)


def find_env_params(policy: Policy) -> frozenset[str]:
    """Return the params that the environment can change."""
    return frozenset(name for name, param in policy.params.items() if param.env is not None)


class ValueNode(NamedTuple):
    """The node of a value, None for a default. A shorthand node sets the whole entry."""

    node: Node | None
    is_shorthand: bool


def locate_value(merged: MergedPolicy, path: Path, field: FieldPath) -> ValueNode:
    """Return the node that sets a value of an entry."""
    node: Node | None = merged.node(path) if merged.has(path) else None
    for step in field:
        if isinstance(node, ScalarNode) or (
            isinstance(node, SequenceNode) and not step.isdecimal()
        ):
            return ValueNode(node, True)
        if isinstance(node, MappingNode) and step not in node and step == "0":
            continue  # a single `radius`, `set` or `clear` need not be a list
        if node is not None:
            node = get_child(node, int(step) if isinstance(node, SequenceNode) else step)
    return ValueNode(node, False)


def _referenced_params(node: Node) -> frozenset[str]:
    """Return the params referenced in a node, found by the source text `$name`."""
    if isinstance(node, ScalarNode):
        written = node.source.text[node.start : node.end].strip("'\"")
        name = scalars.parse_reference(written) if node.text != written else None
        return frozenset() if name is None else frozenset({name})
    nodes = node.items if isinstance(node, SequenceNode) else (value for _, value in node.entries)
    return frozenset(name for child_node in nodes for name in _referenced_params(child_node))


def _read_entries(
    policy: Policy, merged: MergedPolicy, trees: Iterable[Expr]
) -> Iterator[tuple[str, EntrySemantics]]:
    for key in ("mode", "on_internal_error", "locked", "batch"):
        yield key, EntrySemantics((key,), {(): _typed_scalar(getattr(policy, key))})
    for name, param in policy.params.items():
        entry = _read_entry(("params", name), msgspec.structs.replace(param, value=""))
        del entry.fields["value",]
        entry.fields["default",] = _param_default(merged.node(("params", name)))
        yield f"params/{name}", entry
    ordered = order_sensitive_lists(policy.lists, trees)
    for name, items in policy.lists.items():
        items_ = tuple(map(_typed_scalar, items))
        value = items_ if name in ordered else frozenset(items_)
        yield f"lists/{name}", EntrySemantics(("lists", name), {(): value})
    for section in ("tags", "patterns"):
        for name, value in getattr(policy, section).items():
            yield f"{section}/{name}", _read_entry((section, name), value)
    classify = policy.classify
    for key in ("targets", "state_changing", "shell", "fingerprint"):
        yield f"classify/{key}", _read_entry(("classify", key), getattr(classify, key))
    yield from _read_unnamed("classes", ("classify", "classes"), classify.classes, "class")
    yield (
        "outcomes/failed_when",
        _read_entry(("outcomes", "failed_when"), policy.outcomes.failed_when),
    )
    yield "outcomes/meta", _read_entry(("outcomes", "meta"), policy.outcomes.meta)
    yield from _read_unnamed(
        "envelope", ("outcomes", "envelope"), policy.outcomes.envelope, "state"
    )
    for section in ("signatures", "blame"):
        for index, entry in enumerate(getattr(policy, section)):
            yield f"{section}/{entry.id}", _read_entry((section, index), entry)
    for level, limits in policy.limits.items():
        for kind in _limit_kinds(limits):
            limit = getattr(limits, kind)
            path = (*level_path(level), kind)
            if isinstance(limit, tuple) and len(limit) == 1:
                limit, path = limit[0], (*path, 0)
            entry = _read_entry(path, limit)
            if limits.mode == "observe" and getattr(limit, "mode", None) is None:
                entry.fields["mode",] = "observe"
            yield f"limits/{level}/{kind}", entry
    for mark in policy.marks:
        yield f"marks/{mark.id}", _read_entry(("marks", mark.id), _list_events(mark))
    for section in ("budgets", "rules", "result_rules", "exceptions"):
        for entry in getattr(policy, section):
            yield f"{section}/{entry.id}", _read_entry((section, entry.id), entry)
    for section in ("learn", "progress", "journal", "bounds"):
        yield section, _read_entry((section,), getattr(policy, section))
    if policy.pins is not None:
        pins = msgspec.structs.replace(policy.pins, servers={})
        yield "pins", _read_entry(("pins",), pins)
        for server, tools in policy.pins.servers.items():
            for tool, hashes in tools.items():
                path = (*PINNED_TOOLS, server, tool)
                yield f"pins/{server}/{tool}", EntrySemantics(path, {(): hash_tool(hashes)})
    yield "radius", _read_entry(("radius",), _radius_entries(policy) or None)


def _param_default(entry: Node) -> Any:
    """Return a param's type and default value."""
    node = entry.get("default") if isinstance(entry, MappingNode) else entry
    value = default_value(node) if isinstance(node, ScalarNode) else None
    length = scalars.parse_duration(value) if isinstance(value, str) else None
    return (type(value).__name__, value) if length is None else ("duration", length)


def _list_events(mark: Mark) -> Mark:
    """Return a mark with the events of `set` and `clear` as lists, whether there is one or more."""
    listed = {
        kind: (events,) if isinstance(events, MarkEvent) else events or None
        for kind in ("set", "clear")
        for events in (getattr(mark, kind),)
    }
    return msgspec.structs.replace(mark, **listed)


def _radius_entries(policy: Policy) -> tuple[Radius, ...]:
    """Return the `radius` entries with the default of `shrink_after` filled in."""
    default = policy.learn.corroborate if policy.learn is not None else None
    return tuple(
        entry
        if entry.shrink_after is not None
        else msgspec.structs.replace(entry, shrink_after=default)
        for entry in policy.radius
    )


def _read_unnamed(
    section: str, path: Path, values: Iterable[msgspec.Struct], key: str
) -> Iterator[tuple[str, EntrySemantics]]:
    """Yield entries without an id, identified by content; duplicates have no meaning."""
    for index, value in enumerate(values):
        entry = _read_entry((*path, index), value)
        rest = sorted((".".join(field), _sort_key(part)) for field, part in entry.fields.items())
        yield f"{section}/{entry.fields[key,]} {rest}", entry


def _sort_key(value: Any) -> str:
    """Return a sortable text for a value, independent of set order."""
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _limit_kinds(limits: msgspec.Struct) -> list[str]:
    known = [
        name
        for name in limits.__struct_fields__
        if name not in (*_IGNORED_FIELDS, "mode", "locked")
    ]
    return [name for name in known if getattr(limits, name) is not None]


def _read_entry(path: Path, value: Any) -> EntrySemantics:
    fields: dict[FieldPath, Any] = {}
    _read_values(value, (), fields)
    return EntrySemantics(path, fields)


def _read_values(value: Any, field: FieldPath, found: dict[FieldPath, Any]) -> None:
    """Put the values of an entry into `found`, in canonical form."""
    name = field[-1] if field else ""
    if value is None or name in _IGNORED_FIELDS or (name == "mode" and value == "enforce"):
        return
    if name == "locked" and not value and len(field) > 1:
        return  # a part of an entry
    if isinstance(value, Selector):
        found[field] = SelectedItems(frozenset(value.items), value.outside)
    elif isinstance(value, msgspec.Struct):
        for attribute in _struct_fields(type(value)):
            _read_values(getattr(value, attribute.name), (*field, attribute.encode_name), found)
    elif isinstance(value, dict):
        for key, child_value in value.items():
            _read_values(child_value, (*field, str(key)), found)
    elif isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        for index, item in enumerate(value):
            _read_values(item, (*field, str(index)), found)
    elif isinstance(value, tuple):
        items = tuple(
            _normalize_expression(item) if name in _CEL_FIELDS else _typed_scalar(item)
            for item in value
        )
        found[field] = items if name in _ORDERED_FIELDS else frozenset(items)
    elif isinstance(value, str) and value != "none" and (name in _CEL_FIELDS or not field):
        found[field] = _normalize_expression(value)
    else:
        found[field] = _typed_scalar(value)


_struct_fields = cache(msgspec.structs.fields)  # which resolves all annotations, each time


def _typed_scalar(value: Any) -> Any:
    """Return a scalar that equals only itself: in Python, `True == 1`."""
    return ("bool", value) if isinstance(value, bool) else value


@lru_cache(maxsize=256)
def _normalize_expression(text: str) -> NormalizedExpression | str:
    tree = parse(text, lambda code, message, span, help_: None)
    return text if tree is None else NormalizedExpression(_normalize_tree(tree))


def _normalize_tree(node: Any) -> Any:
    """Return a tree as tuples without spans, with sorted operands of `&&` and `||`."""
    if isinstance(node, list | tuple):
        return tuple(map(_normalize_tree, node))
    if not isinstance(node, msgspec.Struct):
        return type(node).__name__, node  # in Python, 1, 1.0 and True are equal
    values = [getattr(node, name) for name in node.__struct_fields__]
    parts = [_normalize_tree(value) for value in values if not isinstance(value, TextSpan)]
    if isinstance(node, Logic):
        parts = [node.operator, *sorted(map(_normalize_tree, node.operands), key=repr)]
    return type(node).__name__, *parts
