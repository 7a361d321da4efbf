"""Where each value of a merged policy comes from, and which values it has taken the place of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from policyguard.compiler.layers import Layered
from policyguard.compiler.load import Layer
from policyguard.compiler.merge import FIRST_MATCH, merged_by_key
from policyguard.engines.yaml_tree import Mapping, Node, Scalar, Sequence
from policyguard.model.policy import Policy
from policyguard.report.policy_shown import Shown, ShownPolicy

Way = tuple[str, ...]


def shown(policy: Policy, layered: Layered, layers: list[Layer]) -> ShownPolicy:
    """A policy as its layers make it. `layers` are those that it was merged from."""
    given: dict[object, list[Node]] = {}
    for layer in layers:
        for way, node in _replaced_whole(layer.root, ()):
            given.setdefault(_identity(way, node), []).append(node)
    taken = ((key, reason) for layer in layers for key, reason in _disabled(layer.root))
    return ShownPolicy(
        sections=_section(layered.tree, (), given, policy),
        disabled=tuple((key.text, _value(reason)) for key, reason in taken),
    )


def _section(node: Mapping, way: Way, given: dict[object, list[Node]], policy: Policy) -> Shown:
    """A map that is merged key by key, with what each value in it has taken the place of."""

    def below(value: Node, inner: Way) -> Shown:
        if isinstance(value, Mapping) and merged_by_key(inner):
            return _section(value, inner, given, policy)
        if isinstance(value, Sequence) and inner in FIRST_MATCH:
            items = [_whole(item, inner, given, policy) for item in value.items]
            return replace(_value(value), value=items)
        return _whole(value, inner, given, policy)

    found = {key.text: below(value, (*way, key.text)) for key, value in node.entries}
    return replace(_value(node), value=found)


def _whole(node: Node, way: Way, given: dict[object, list[Node]], policy: Policy) -> Shown:
    """A value that a layer replaces as a whole."""
    identity = _identity(way, node)
    others = [_value(one) for one in given.get(identity, ()) if _place(one) != _place(node)]
    return replace(_value(node), before=tuple(reversed(others)), note=_note(way, policy))


def _note(way: Way, policy: Policy) -> str:
    """What a param is at present, where the environment may say so."""
    param = policy.params.get(way[1]) if way[0] == "params" and len(way) == 2 else None
    return f"{param.value} now, from {param.env} or the default" if param and param.env else ""


def _replaced_whole(node: Node, way: Way) -> Iterator[tuple[Way, Node]]:
    """The values of a layer that replace inherited ones as a whole, with the way to each."""
    for key, value in node.entries if isinstance(node, Mapping) else ():
        inner = (*way, key.text)
        if isinstance(value, Mapping) and merged_by_key(inner):
            yield from _replaced_whole(value, inner)
        elif isinstance(value, Sequence) and inner in FIRST_MATCH:
            yield from ((inner, item) for item in value.items)
        elif way != ("lists",) or isinstance(value, Sequence):  # else it changes the inherited one
            yield inner, value


def _identity(way: Way, node: Node) -> object:
    """What tells whether a later layer means the same thing by a value."""
    if way not in FIRST_MATCH:
        return way
    id_ = node.get("id") if isinstance(node, Mapping) else None
    return (way, id_.text) if isinstance(id_, Scalar) else _place(node)


def _disabled(root: Node) -> Iterator[tuple[Scalar, Node]]:
    section = root.get("disable") if isinstance(root, Mapping) else None
    yield from section.entries if isinstance(section, Mapping) else ()


def _value(node: Node) -> Shown:
    """A value as it stands in its file."""
    found = Shown(None, node.source.file, node.span.line)
    if isinstance(node, Mapping):
        return replace(found, value={key.text: _value(value) for key, value in node.entries})
    if isinstance(node, Sequence):
        return replace(found, value=[_value(item) for item in node.items])
    return replace(found, value=node.value)


def _place(node: Node) -> tuple[str, int]:
    return node.source.file, node.start
