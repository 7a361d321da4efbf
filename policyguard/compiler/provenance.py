"""Where each value of a merged policy comes from, and which values it has taken the place of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from policyguard.compiler.load.loader import Layer
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.compiler.merge.merger import FIRST_MATCH_LISTS, is_merged_by_key
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.policy import Policy
from policyguard.report.policy.annotated import AnnotatedPolicy, AnnotatedValue

KeyPath = tuple[str, ...]


def collect_provenance(
    policy: Policy, merged: MergedPolicy, layers: list[Layer]
) -> AnnotatedPolicy:
    """A policy as its layers make it. `layers` are those that it was merged from."""
    given: dict[object, list[Node]] = {}
    for layer in layers:
        for way, node in _replaceable_values(layer.root, ()):
            given.setdefault(_value_identity(way, node), []).append(node)
    taken = ((key, reason) for layer in layers for key, reason in _disabled_entries(layer.root))
    return AnnotatedPolicy(
        sections=_describe_section(merged.tree, (), given, policy),
        disabled=tuple((key.text, _to_shown(reason)) for key, reason in taken),
    )


def _describe_section(
    node: MappingNode, way: KeyPath, given: dict[object, list[Node]], policy: Policy
) -> AnnotatedValue:
    """A map that is merged key by key, with what each value in it has taken the place of."""

    def below(value: Node, inner: KeyPath) -> AnnotatedValue:
        if isinstance(value, MappingNode) and is_merged_by_key(inner):
            return _describe_section(value, inner, given, policy)
        if isinstance(value, SequenceNode) and inner in FIRST_MATCH_LISTS:
            items = [_describe_value(item, inner, given, policy) for item in value.items]
            return replace(_to_shown(value), value=items)
        return _describe_value(value, inner, given, policy)

    found = {key.text: below(value, (*way, key.text)) for key, value in node.entries}
    return replace(_to_shown(node), value=found)


def _describe_value(
    node: Node, way: KeyPath, given: dict[object, list[Node]], policy: Policy
) -> AnnotatedValue:
    """A value that a layer replaces as a whole."""
    identity = _value_identity(way, node)
    others = [
        _to_shown(one) for one in given.get(identity, ()) if _location(one) != _location(node)
    ]
    return replace(
        _to_shown(node), overridden=tuple(reversed(others)), note=_param_note(way, policy)
    )


def _param_note(way: KeyPath, policy: Policy) -> str:
    """What a param is at present, where the environment may say so."""
    param = policy.params.get(way[1]) if way[0] == "params" and len(way) == 2 else None
    return f"{param.value} now, from {param.env} or the default" if param and param.env else ""


def _replaceable_values(node: Node, way: KeyPath) -> Iterator[tuple[KeyPath, Node]]:
    """The values of a layer that replace inherited ones as a whole, with the way to each."""
    for key, value in node.entries if isinstance(node, MappingNode) else ():
        inner = (*way, key.text)
        if isinstance(value, MappingNode) and is_merged_by_key(inner):
            yield from _replaceable_values(value, inner)
        elif isinstance(value, SequenceNode) and inner in FIRST_MATCH_LISTS:
            yield from ((inner, item) for item in value.items)
        elif way != ("lists",) or isinstance(
            value, SequenceNode
        ):  # else it changes the inherited one
            yield inner, value


def _value_identity(way: KeyPath, node: Node) -> object:
    """What tells whether a later layer means the same thing by a value."""
    if way not in FIRST_MATCH_LISTS:
        return way
    id_ = node.get("id") if isinstance(node, MappingNode) else None
    return (way, id_.text) if isinstance(id_, ScalarNode) else _location(node)


def _disabled_entries(root: Node) -> Iterator[tuple[ScalarNode, Node]]:
    section = root.get("disable") if isinstance(root, MappingNode) else None
    yield from section.entries if isinstance(section, MappingNode) else ()


def _to_shown(node: Node) -> AnnotatedValue:
    """A value as it stands in its file."""
    found = AnnotatedValue(None, node.source.file, node.span.line)
    if isinstance(node, MappingNode):
        return replace(found, value={key.text: _to_shown(value) for key, value in node.entries})
    if isinstance(node, SequenceNode):
        return replace(found, value=[_to_shown(item) for item in node.items])
    return replace(found, value=node.value)


def _location(node: Node) -> tuple[str, int]:
    return node.source.file, node.start
