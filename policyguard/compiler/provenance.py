"""Trace each value of a merged policy to its file and the values that it replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.loader import Layer
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.compiler.merge.locks import Locks
from policyguard.compiler.merge.merger import FIRST_MATCH_LISTS, is_merged_by_key
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.policy import Policy
from policyguard.report.policy.annotated import AnnotatedPolicy, AnnotatedValue, Scalar

KeyPath = tuple[str, ...]


def collect_provenance(
    policy: Policy, merged: MergedPolicy, layers: list[Layer]
) -> AnnotatedPolicy:
    """Annotate a policy with the sources of its values; `layers` are those it was merged from."""
    values: dict[object, list[Node]] = {}
    for layer in layers:
        for path, node in _replaceable_values(layer.root, ()):
            values.setdefault(_value_identity(path, node), []).append(node)
    disabled = ((key, reason) for layer in layers for key, reason in _disabled_entries(layer.root))
    return AnnotatedPolicy(
        sections=_describe_section(merged.tree, (), values, policy, merged.locks),
        disabled=tuple((key.text, _to_shown(reason)) for key, reason in disabled),
    )


def select_values(
    policy: AnnotatedPolicy, sections: Collection[str], *, own: bool
) -> AnnotatedPolicy:
    """Return only these sections (all if empty), with `own` only what is not from a pack."""
    root = policy.sections
    found = root.value if isinstance(root.value, dict) else {}
    chosen = {key: node for key, node in found.items() if not sections or key in sections}
    disabled = () if sections else policy.disabled
    if own:
        chosen = {key: kept for key, node in chosen.items() if (kept := _own_values(node))}
        disabled = tuple((id_, node) for id_, node in disabled if _is_own(node))
    return AnnotatedPolicy(replace(root, value=chosen), disabled)


def _own_values(node: AnnotatedValue) -> AnnotatedValue | None:
    """Return a value without what is from packs, None if nothing is left."""
    value = node.value
    if isinstance(value, dict) and value:
        kept = {key: own for key, child in value.items() if (own := _own_values(child))}
        return replace(node, value=kept) if kept else None
    if isinstance(value, list) and value:
        items = [own for child in value if (own := _own_values(child))]
        return replace(node, value=items) if items else None
    return node if _is_own(node) else None


def _is_own(node: AnnotatedValue) -> bool:
    return not node.file.startswith(PACK_PREFIX)


def _describe_section(
    node: MappingNode,
    path: KeyPath,
    values: dict[object, list[Node]],
    policy: Policy,
    locks: Locks,
) -> AnnotatedValue:
    """Annotate a map that merges key by key."""

    def annotate(value: Node, inner: KeyPath) -> AnnotatedValue:
        if isinstance(value, MappingNode) and is_merged_by_key(inner):
            return _describe_section(value, inner, values, policy, locks)
        if isinstance(value, SequenceNode) and inner in FIRST_MATCH_LISTS:
            items = [_describe_value(item, inner, values, policy, locks) for item in value.items]
            return replace(_to_shown(value), value=items)
        return _describe_value(value, inner, values, policy, locks)

    found = {key.text: annotate(value, (*path, key.text)) for key, value in node.entries}
    return replace(_to_shown(node), value=found)


def _describe_value(
    node: Node,
    path: KeyPath,
    values: dict[object, list[Node]],
    policy: Policy,
    locks: Locks,
) -> AnnotatedValue:
    """Annotate a value that layers replace as a whole."""
    identity = _value_identity(path, node)
    others = [
        _to_shown(other)
        for other in values.get(identity, ())
        if _location(other) != _location(node)
    ]
    return replace(
        _to_shown(node),
        overridden=tuple(reversed(others)),
        note=_param_note(path, policy) or _lock_note(path, locks),
    )


def _lock_note(path: KeyPath, locks: Locks) -> str:
    """Return a note on a value that later layers may not change."""
    lock = locks.get(path)
    return f"locked at {lock.place}" if lock is not None and not lock.user else ""


def _param_note(path: KeyPath, policy: Policy) -> str:
    """Return a note on a param's current value if the environment can set it."""
    param = policy.params.get(path[1]) if path[0] == "params" else None
    return f"{param.value} now, from {param.env} or the default" if param and param.env else ""


def _replaceable_values(node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, Node]]:
    """Yield the values of a layer that replace inherited ones as a whole, with their paths."""
    for key, value in node.entries if isinstance(node, MappingNode) else ():
        inner = (*path, key.text)
        if isinstance(value, MappingNode) and is_merged_by_key(inner):
            yield from _replaceable_values(value, inner)
        elif isinstance(value, SequenceNode) and inner in FIRST_MATCH_LISTS:
            yield from ((inner, item) for item in value.items)
        elif path != ("lists",) or isinstance(value, SequenceNode):  # a map edits a list
            yield inner, value


def _value_identity(path: KeyPath, node: Node) -> object:
    """Return the key that values of different layers share if one replaces the other."""
    if path not in FIRST_MATCH_LISTS:
        return path
    id_ = node.get("id") if isinstance(node, MappingNode) else None
    return (path, id_.text) if isinstance(id_, ScalarNode) else _location(node)


def _disabled_entries(root: Node) -> Iterator[tuple[ScalarNode, Node]]:
    section = root.get("disable") if isinstance(root, MappingNode) else None
    yield from section.entries if isinstance(section, MappingNode) else ()


def _to_shown(node: Node) -> AnnotatedValue:
    """Annotate a value with its place in its file."""
    value: Scalar | list[AnnotatedValue] | dict[str, AnnotatedValue]
    if isinstance(node, MappingNode):
        value = {key.text: _to_shown(child) for key, child in node.entries}
    elif isinstance(node, SequenceNode):
        value = [_to_shown(item) for item in node.items]
    else:
        value = node.value
    return AnnotatedValue(value, node.source.file, node.span.line)


def _location(node: Node) -> tuple[str, int]:
    return node.source.file, node.start
