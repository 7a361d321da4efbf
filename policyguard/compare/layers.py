"""Find what a layer loosens or replaces in the files that it extends, not packs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from policyguard.cel.syntax.ast import Expr
from policyguard.compare.semantics import (
    EntrySemantics,
    FieldPath,
    ParamValue,
    PolicySemantics,
    locate_value,
    read_semantics,
)
from policyguard.compare.strictness import Direction, key_direction
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.merge.layers import LayerStep, MergedPolicy
from policyguard.compiler.merge.merger import merge_layer
from policyguard.compiler.merge.params import read_params
from policyguard.compiler.merge.substitution import KnownNames, substitute_names
from policyguard.compiler.merge.typed_policy import build_typed_policy
from policyguard.engines.yaml_tree import MappingNode, Path, descend, to_plain
from policyguard.model.diagnostic import Span
from policyguard.model.policy import Policy, Value
from policyguard.report.policy.annotated import flow_yaml

_UNCOMPARED_SECTIONS = frozenset(
    {"mode", "on_internal_error", "locked", "exceptions", "tags", "lists", "patterns", "journal"}
)
"""Settings of the whole policy, entries that say what they exempt, and what refuses nothing."""
_UNCOMPARED_ENTRIES = frozenset({"classify/targets", "classify/shell", "classify/fingerprint"})
_UNCOMPARED_FIELDS = frozenset(
    {"message", "instead", "env", "unit", "default", "type", "locked", "advise_at", "pattern"}
)
_MERGED_BY_KEY = frozenset({"outcomes/meta", "learn", "bounds"})
"""Entries where a key that the base does not set is added, not replaced."""
_DEFAULT = "its default"
_WAIT = ("approval", "within")
"""How long to wait for an approval: no call runs in the meantime."""
_WHOLE_POLICY = frozenset({"outcomes/failed_when", "classify/state_changing"})
"""Settings that inherited entries depend on, also if they leave them at their default."""
_LIST_SECTIONS = ("signatures/", "blame/")
_WEAK_ALONE = frozenset({("window",), ("longest",), ("within",), ("cooldown",), ("refuse",)})
"""Fields with which an entry is looser, unless a maximum falls too."""


class LayerChange(NamedTuple):
    """A value of an inherited entry that a layer changes: its entry, and where the layer says so.

    `file` is that of the old value. `direction` is `looser`, or empty if the change has none. A
    value is None if it is not set.
    """

    entry: str
    field: FieldPath
    span: Span
    file: str
    direction: Direction
    old: str | None
    new: str | None


class _Side(NamedTuple):
    merged: MergedPolicy
    semantics: PolicySemantics


def compare_layers(
    policy: Policy, merged: MergedPolicy, trees: Iterable[Expr]
) -> Iterator[tuple[LayerStep, list[LayerChange]]]:
    """Yield each layer, packs and what only extends packs aside, and what it changes.

    A change that a later layer takes back is left out.
    """
    values = {name: param.value for name, param in policy.params.items()}
    extends_own = False
    final: _Side | None = None
    for step in merged.steps:
        if step.layer.source.file.startswith(PACK_PREFIX):
            continue
        if extends_own:
            final = final or _read_side(merged, _merge(merged.steps[-1]), trees, values)
            old = _read_side(merged, step.inherited, trees, values)
            is_last = step is merged.steps[-1]
            new = final if is_last else _read_side(merged, _merge(step), trees, values)
            yield step, list(_compare(old, new, final, step.layer.source.file))
        else:
            yield step, []
        extends_own = True


def _merge(step: LayerStep) -> MappingNode:
    return merge_layer(step.inherited, step.layer, step.pinned)[0]


def _read_side(
    merged: MergedPolicy, tree: MappingNode, trees: Iterable[Expr], values: dict[str, Value]
) -> _Side:
    """Return the semantics of a tree, with its params at their defaults.

    A name that only a later layer defines has the value of the whole policy.
    """
    defaults = read_params(tree.get("params"), {}).values
    tree = _add_missing_lists(tree, merged.tree)
    resolved, _ = substitute_names(tree, KnownNames({**values, **defaults}, None))
    side = replace(merged, tree=resolved)
    policy = build_typed_policy(resolved, defaults, "")
    return _Side(side, read_semantics(policy, side, trees, frozenset({*values, *defaults})))


def _add_missing_lists(tree: MappingNode, final: MappingNode) -> MappingNode:
    """Return a tree with the lists that only the whole policy has."""
    lists, others = tree.get("lists"), final.get("lists")
    if not isinstance(others, MappingNode):
        return tree
    known = lists.entries if isinstance(lists, MappingNode) else ()
    names = {key.text for key, _ in known}
    added = [item for item in others.entries if item[0].text not in names]
    rest = [item for item in tree.entries if item[0].text != "lists"]
    section = (final.key_node("lists"), others.with_entries([*known, *added]))
    return tree.with_entries([*rest, section])


def _compare(old: _Side, new: _Side, final: _Side, file: str) -> Iterator[LayerChange]:
    for id_, after in new.semantics.entries.items():
        before, last = old.semantics.entries.get(id_), final.semantics.entries.get(id_)
        if id_ in _UNCOMPARED_ENTRIES or id_.partition("/")[0] in _UNCOMPARED_SECTIONS:
            continue
        if before is None or last is None or not (before.fields or id_ in _WHOLE_POLICY):
            continue
        changes = dict(_compare_entry(id_, before, after, last))
        kept = before.fields.keys() & after.fields.keys()
        is_tighter = any(changes[field] == "tighter" for field in changes.keys() & kept)
        for field, direction in changes.items():
            is_weak_alone = field not in after.fields or field[-1:] in _WEAK_ALONE
            if direction == "tighter" or (direction and is_tighter and is_weak_alone):
                continue
            span = _written_span(new.merged.tree, after.path, field, file)
            replaced = locate_value(old.merged, before.path, field).node
            origin = (replaced or old.merged.node(before.path)).source.file
            if replaced is None and not direction and id_ in _MERGED_BY_KEY:
                continue
            if span is not None and not origin.startswith(PACK_PREFIX):
                name = id_ if id_.startswith(_LIST_SECTIONS) else "/".join(map(str, after.path))
                values = (_format(old, before, field), _format(new, after, field))
                if values != (_DEFAULT, _DEFAULT):
                    yield LayerChange(name, field, span, origin, direction, *values)


def _format(side: _Side, entry: EntrySemantics, field: FieldPath) -> str | None:
    """Return a value as the policy writes it; None if it is not set."""
    if field not in entry.fields:
        return None
    node = locate_value(side.merged, entry.path, field).node
    return _DEFAULT if node is None else f"`{flow_yaml(to_plain(node))}`"


def _is_uncompared(field: FieldPath) -> bool:
    return bool(field and field[-1] in _UNCOMPARED_FIELDS) or field == _WAIT


def _written_span(tree: MappingNode, entry: Path, field: FieldPath, file: str) -> Span | None:
    """Return where a layer's file sets a value of an entry; None if another file does."""
    paths: list[Path] = [(*entry, *field)]
    if entry[0] == "limits" and field == ("mode",):
        paths.append((*entry[:-1], "mode"))  # the level's applies to each of its limits
    for path in paths:
        node, rest = descend(tree, path)
        if len(path) - len(rest) >= min(len(entry), len(path)) and node.source.file == file:
            return find_span(tree, path[: len(path) - len(rest)], key=True)
    return None


def _compare_entry(
    id_: str, before: EntrySemantics, after: EntrySemantics, last: EntrySemantics
) -> Iterator[tuple[FieldPath, Direction]]:
    """Yield the changed fields and their directions, without what later layers take back."""
    is_switched = "none" in (before.fields.get(()), after.fields.get(()))
    for field in [()] if is_switched else dict.fromkeys((*before.fields, *after.fields)):
        direction = _direction(id_, field, before, after)
        if direction is None or _is_uncompared(field):
            continue
        if direction == "tighter" or _direction(id_, field, before, last) in ("looser", ""):
            yield field, direction


def _direction(
    id_: str, field: FieldPath, old: EntrySemantics, new: EntrySemantics
) -> Direction | None:
    """Return the direction of a change, or None if there is no change."""
    before, after = old.fields.get(field), new.fields.get(field)
    params = [value.params for value in (before, after) if isinstance(value, ParamValue)]
    if len(params) == 2 and params[0] == params[1]:
        return None
    before, after = _current(before), _current(after)
    if before == after:
        return None
    if not field and "none" in (before, after):
        return "looser" if after == "none" else "tighter"
    return key_direction(id_, field, before, after)


def _current(value: Any) -> Any:
    return value.value if isinstance(value, ParamValue) else value
