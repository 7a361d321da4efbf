"""What a policy means, entry by entry: two that judge all calls alike compare as equal.

Order is kept where it matters and nowhere else, defaults are filled in, durations are numbers, and
an expression is what it says, not how it is written. What never changes how a call is judged is
left out: names and descriptions, metadata, examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from policyguard.cel.parse import parse
from policyguard.cel.tree import Logic, Span
from policyguard.compiler.reach import level_path
from policyguard.engines.yaml_tree import Path
from policyguard.model.entry import Selector
from policyguard.model.policy import Policy, Radius

Field = tuple[str, ...]
"""The way from an entry to one of its values; empty where the entry is the value."""

Fields = Mapping[Field, Any]
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


class Part(NamedTuple):
    """One entry: where it stands in the merged policy, and its values."""

    path: Path
    fields: dict[Field, Any]


class Meaning(NamedTuple):
    """All entries by id, and the ids in each list that is read first-match."""

    parts: dict[str, Part]
    orders: dict[str, tuple[str, ...]]


def meaning(policy: Policy) -> Meaning:
    """What a policy means."""
    parts = dict(_parts(policy))
    orders = {
        section: tuple(id_ for id_ in parts if id_.startswith(f"{section}/"))
        for section in ("classes", "envelope", "signatures", "blame")
    }
    return Meaning(parts, orders)


def _parts(policy: Policy) -> Iterator[tuple[str, Part]]:
    for key in ("mode", "on_internal_error", "locked"):
        yield key, Part((key,), {(): getattr(policy, key)})
    for section in ("params", "tags", "lists", "patterns"):
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
