"""What a policy means, entry by entry: two that judge all calls alike compare as equal.

Order is kept where it matters and nowhere else, defaults are filled in, durations are numbers, and
an expression is what it says, not how it is written. What the environment may change is not only
what it is now. What never changes how a call is judged is left out: names and descriptions,
metadata, examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingType
from typing import Any, NamedTuple

import msgspec

from policyguard.cel.parse import parse
from policyguard.cel.tree import Logic, Span
from policyguard.compiler import Compiled, scalars
from policyguard.compiler.layers import Layered
from policyguard.compiler.params import value_of
from policyguard.compiler.reach import level_path
from policyguard.engines.yaml_tree import Mapping, Node, Path, Scalar, Sequence, child
from policyguard.lint.arranged import arranged
from policyguard.model.entry import Selector
from policyguard.model.policy import Policy, Radius

Field = tuple[str, ...]
"""The way from an entry to one of its values; empty where the entry is the value."""

Fields = MappingType[Field, Any]
"""What an entry says. A value that is not there is not given."""

_SILENT = frozenset({"id", "owner", "severity", "docs", "labels", "reason", "examples"})
_CEL = frozenset({"when", "unless", "sum", "key", "keys", "failed_when", "scope_key", "count_by"})
_IN_ORDER = frozenset({"schedule", "arguments", "keys"})
"""Lists whose order matters; all others are sets."""


class Chosen(NamedTuple):
    """What a selector names: `items`, or whatever is outside of them."""

    items: frozenset[str]
    outside: bool


class Cel(NamedTuple):
    """An expression, as what it says."""

    says: tuple[Any, ...]


class Read(NamedTuple):
    """A value that comes from `params` which the environment may change: what it is now."""

    value: Any
    params: frozenset[str]


class Part(NamedTuple):
    """One entry: where it stands in the merged policy, and its values."""

    path: Path
    fields: dict[Field, Any]


class Meaning(NamedTuple):
    """All entries by id, and the ids in each list that is read first-match."""

    parts: dict[str, Part]
    orders: dict[str, tuple[str, ...]]


def meaning(compiled: Compiled, steered: frozenset[str]) -> Meaning:
    """What a policy means. `steered` are the params that are told from what they are now."""
    parts = dict(_parts(compiled))
    for part in parts.values():
        for field, value in part.fields.items():
            node = at(compiled.layered, part.path, field).node
            if node is not None and (read := steered & _params(node)):
                part.fields[field] = Read(value, read)
    orders = {
        section: tuple(id_ for id_ in parts if id_.startswith(f"{section}/"))
        for section in ("classes", "envelope", "signatures", "blame")
    }
    return Meaning(parts, orders)


def steered(policy: Policy) -> frozenset[str]:
    """The params that the environment may change."""
    return frozenset(name for name, param in policy.params.items() if param.env is not None)


class Place(NamedTuple):
    """The node that says a value, None for a default; `short` if it says the whole entry."""

    node: Node | None
    short: bool


def at(layered: Layered, path: Path, field: Field) -> Place:
    """Where a policy says a value of an entry."""
    node: Node | None = layered.node(path) if layered.has(path) else None
    for step in field:
        if isinstance(node, Scalar) or (isinstance(node, Sequence) and not step.isdecimal()):
            return Place(node, True)
        if isinstance(node, Mapping) and step not in node and step.isdecimal():
            continue  # the one schedule of a `radius` need not stand in a list
        if node is not None:
            node = child(node, int(step) if isinstance(node, Sequence) else step)
    return Place(node, False)


def _params(node: Node) -> frozenset[str]:
    """The params whose values stand in a node. Their place is still that of the `$name`."""
    if isinstance(node, Scalar):
        written = node.source.text[node.start : node.end].strip("'\"")
        name = scalars.reference(written) if node.text != written else None
        return frozenset() if name is None else frozenset({name})
    below = node.items if isinstance(node, Sequence) else (value for _, value in node.entries)
    return frozenset(name for one in below for name in _params(one))


def _parts(compiled: Compiled) -> Iterator[tuple[str, Part]]:
    policy = compiled.policy
    for key in ("mode", "on_internal_error", "locked"):
        yield key, Part((key,), {(): getattr(policy, key)})
    for name, param in policy.params.items():
        part = _part(("params", name), msgspec.structs.replace(param, value=""))
        del part.fields["value",]
        part.fields["default",] = _default(compiled.layered.node(("params", name)))
        yield f"params/{name}", part
    ordered = arranged(policy.lists, (program.tree for _, program in compiled.expressions))
    for name, items in policy.lists.items():
        told = tuple(map(_told, items))
        value = told if name in ordered else frozenset(told)
        yield f"lists/{name}", Part(("lists", name), {(): value})
    for section in ("tags", "patterns"):
        for name, value in getattr(policy, section).items():
            yield f"{section}/{name}", _part((section, name), value)
    classify = policy.classify
    for key in ("targets", "state_changing", "shell", "fingerprint"):
        yield f"classify/{key}", _part(("classify", key), getattr(classify, key))
    yield from _unnamed("classes", ("classify", "classes"), classify.classes, "class")
    yield "outcomes/failed_when", _part(("outcomes", "failed_when"), policy.outcomes.failed_when)
    yield "outcomes/meta", _part(("outcomes", "meta"), policy.outcomes.meta)
    yield from _unnamed("envelope", ("outcomes", "envelope"), policy.outcomes.envelope, "state")
    for section in ("signatures", "blame"):
        for place, entry in enumerate(getattr(policy, section)):
            yield f"{section}/{entry.id}", _part((section, place), entry)
    for level, limits in policy.limits.items():
        for kind in _kinds(limits):
            limit = getattr(limits, kind)
            part = _part((*level_path(level), kind), limit)
            if limits.mode == "observe" and getattr(limit, "mode", None) is None:
                part.fields["mode",] = "observe"
            yield f"limits/{level}/{kind}", part
    for section in ("marks", "budgets", "rules", "result_rules", "exceptions"):
        for entry in getattr(policy, section):
            yield f"{section}/{entry.id}", _part((section, entry.id), entry)
    for section in ("learn", "progress", "journal", "bounds"):
        yield section, _part((section,), getattr(policy, section))
    yield "radius", _part(("radius",), _shrinking(policy) or None)


def _default(entry: Node) -> Any:
    """What a param is where the environment says nothing, and its type, which it always has."""
    node = entry.get("default") if isinstance(entry, Mapping) else entry
    value = value_of(node) if isinstance(node, Scalar) else None
    length = scalars.duration(value) if isinstance(value, str) else None
    return (type(value).__name__, value) if length is None else ("duration", length)


def _shrinking(policy: Policy) -> tuple[Radius, ...]:
    """The schedules, each with the failures that it shrinks after: by default those that teach."""
    taught = policy.learn.corroborate if policy.learn is not None else None
    return tuple(
        entry
        if entry.shrink_after is not None
        else msgspec.structs.replace(entry, shrink_after=taught)
        for entry in policy.radius
    )


def _unnamed(
    section: str, path: Path, entries: Iterable[msgspec.Struct], key: str
) -> Iterator[tuple[str, Part]]:
    """Entries without an id. Equal ones have the same; one that comes again means nothing."""
    for place, entry in enumerate(entries):
        part = _part((*path, place), entry)
        rest = sorted((".".join(field), _key(value)) for field, value in part.fields.items())
        yield f"{section}/{part.fields[key,]} {rest}", part


def _key(value: Any) -> str:
    """A text that equal values have; that of a set depends on how it was made."""
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _kinds(limits: msgspec.Struct) -> list[str]:
    known = [name for name in limits.__struct_fields__ if name not in (*_SILENT, "mode", "locked")]
    return [name for name in known if getattr(limits, name) is not None]


def _part(path: Path, value: Any) -> Part:
    return Part(path, dict(_values(value, ())))


def _values(value: Any, field: Field) -> Iterator[tuple[Field, Any]]:
    """The values in an entry, in a form that compares as what they mean."""
    name = field[-1] if field else ""
    if value is None or name in _SILENT or (name == "mode" and value == "enforce"):
        return
    if isinstance(value, Selector):
        yield field, Chosen(frozenset(value.items), value.outside)
    elif isinstance(value, msgspec.Struct):
        for inner in msgspec.structs.fields(value):
            yield from _values(getattr(value, inner.name), (*field, inner.encode_name))
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from _values(below, (*field, str(key)))
    elif isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        for place, item in enumerate(value):
            yield from _values(item, (*field, str(place)))
    elif isinstance(value, tuple):
        items = tuple(_expression(item) if name in _CEL else _told(item) for item in value)
        yield field, items if name in _IN_ORDER else frozenset(items)
    elif isinstance(value, str) and value != "none" and (name in _CEL or not field):
        yield field, _expression(value)
    else:
        yield field, _told(value)


def _told(value: Any) -> Any:
    """A scalar that is equal to nothing else: for Python, true is 1."""
    return ("bool", value) if isinstance(value, bool) else value


def _expression(text: str) -> Cel | str:
    tree = parse(text, lambda code, message, span, help_: None)
    return text if tree is None else Cel(_says(tree))


def _says(node: Any) -> Any:
    """A tree without its places. What `&&` and `||` join has no order."""
    if isinstance(node, list | tuple):
        return tuple(map(_says, node))
    if not isinstance(node, msgspec.Struct):
        return type(node).__name__, node  # for Python, 1 and 1.0 and true are equal
    values = [getattr(node, name) for name in node.__struct_fields__]
    said = [_says(value) for value in values if not isinstance(value, Span)]
    if isinstance(node, Logic):
        said = [node.operator, *sorted(map(_says, node.operands), key=repr)]
    return type(node).__name__, *said
