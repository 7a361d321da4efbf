"""Replace each `$name` with the value of the param or list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from policyguard.compiler.load import scalars, schema
from policyguard.compiler.load.layer_validation import prune
from policyguard.compiler.load.schema_messages import describe_problem
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    descend,
    to_outline,
    to_plain,
)
from policyguard.model.diagnostic import Diagnostic, did_you_mean
from policyguard.model.policy import Value

_SINGLE_VALUES = frozenset({"duration", "count", "number", "amount"})
"""Scalar formats (`x-scalar`) in which `$name` may stand for one value."""
_LIST_ITEMS = frozenset({"name", "glob"})
"""Formats of list items, where `$name` may insert a whole list."""

MAX_LIST_ITEMS = 100_000
"""How many items all named lists together may insert."""


class KnownNames(NamedTuple):
    """The values of params, and the names whose values are broken.

    `broken` is None if a layer is missing, so that any name may exist. Neither is reported.
    """

    params: dict[str, Value]
    broken: frozenset[str] | None


def substitute_names(tree: MappingNode, known: KnownNames) -> tuple[MappingNode, list[Diagnostic]]:
    """Resolve every `$name` in a merged policy, and check that its value fits."""
    resolver = _Resolver(tree, known)
    found = resolver.resolve()
    if not resolver.found_any:
        return found, []
    problems = schema.validator().validate(to_plain(_changed_sections(found, tree)))
    for problem in problems:
        node, rest = descend(found, problem.path)
        name = resolver.substituted.get(id(node))
        if name is not None and not rest:
            described = describe_problem(problem, None)
            message = f"`{name}` does not fit here: {described.message}"
            resolver.report(node, described.code, message, described.hint)
    pruned, _ = prune(found, problems)
    return pruned if pruned is not None else found, resolver.diagnostics


def _changed_sections(found: MappingNode, tree: MappingNode) -> MappingNode:
    """Return what must be validated again; `policyguard` and `name`, which are required, stay."""
    return found.with_entries(
        (key, node)
        for key, node in found.entries
        if isinstance(node, ScalarNode) or node is not tree.get(key.text)
    )


class _Resolver:
    def __init__(self, tree: MappingNode, known: KnownNames) -> None:
        self._tree = tree
        self._known = known
        section = tree.get("lists")
        self._lists = dict(_lists_by_name(section)) if isinstance(section, MappingNode) else {}
        self._expanding: list[str] = []
        self._item_count = 0
        self.found_any = False
        """Whether the tree contains any `$name`."""
        self._flattened: dict[str, list[Node]] = {}
        self.substituted: dict[int, str] = {}
        """The `$name` of each substituted node, by the node's id()."""
        self._glob_nodes: set[int] = set()
        """The id() of each `$name` among globs, where `?` can stand for the `$`."""
        self.diagnostics: list[Diagnostic] = []

    def resolve(self) -> MappingNode:
        found = self._resolve_node(self._tree, schema.document())
        return found if isinstance(found, MappingNode) else self._tree

    def report(self, node: Node, code: str, message: str, hint: str | None = None) -> None:
        self.diagnostics.append(node.source.diagnostic(code, message, node.span, hint=hint))

    def _resolve_node(self, node: Node, around: schema.Subschema) -> Node | None:
        """Return `node` with its names resolved; None for an unknown name."""
        if not _has_reference(node):
            return node
        shape = schema.resolve_for(around, to_outline(node))
        if isinstance(node, ScalarNode):
            name = _reference_name(node) if shape.get("x-scalar") in _SINGLE_VALUES else None
            return node if name is None else self._resolve_scalar(node, name)
        if isinstance(node, SequenceNode):
            return node.with_items(self._resolve_items(node, shape))
        entries = [
            (key, self._resolve_node(value, schema.child_schema(shape, key.text)))
            for key, value in node.entries
        ]
        return node.with_entries((key, value) for key, value in entries if value is not None)

    def _resolve_items(self, node: SequenceNode, shape: schema.Subschema) -> Iterator[Node]:
        for index, item in enumerate(node.items):
            child = schema.child_schema(shape, index)
            format_ = schema.resolve_for(child, to_outline(item)).get("x-scalar")
            name = _reference_name(item) if format_ in _LIST_ITEMS else None
            if name is not None and isinstance(item, ScalarNode):
                if format_ == "glob":
                    self._glob_nodes.add(id(item))
                yield from self._resolve_list_item(item, name)
            else:
                found = self._resolve_node(item, child)
                if found is not None:
                    yield found

    def _resolve_scalar(self, node: ScalarNode, name: str) -> ScalarNode | None:
        self.found_any = True
        if name in self._known.params:
            return self._substitute_param(node, name)
        if name in self._lists:
            self.report(node, "reference/list", f"`${name}` is a list, but one value is expected")
        else:
            self._report_unknown(node, name, self._known.params)
        return None

    def _resolve_list_item(self, node: ScalarNode, name: str) -> list[Node]:
        self.found_any = True
        if name in self._lists:
            return self._flatten(node, name)
        if name in self._known.params:
            return [self._substitute_param(node, name)]
        self._report_unknown(node, name, [*self._lists, *self._known.params])
        return []

    def _flatten(self, node: ScalarNode, name: str) -> list[Node]:
        """Return the items of a list, with nested lists inserted."""
        if name in self._expanding:
            cycle = " → ".join(f"${step}" for step in [*self._expanding, name])
            self.report(node, "reference/list-cycle", f"`${name}` contains itself: {cycle}")
            return []
        if name not in self._flattened:
            self._expanding.append(name)
            flat: list[Node] = []
            for item in self._lists[name].items:
                inner = _reference_name(item)
                if inner is not None and isinstance(item, ScalarNode):
                    flat += self._resolve_list_item(item, inner)
                else:
                    flat.append(item)
            self._expanding.pop()
            self._flattened[name] = flat
        items = self._flattened[name]
        for item in items:
            self.substituted.setdefault(id(item), f"${name}")
        self._item_count += len(items)
        if self._item_count > MAX_LIST_ITEMS:
            if self._item_count - len(items) <= MAX_LIST_ITEMS:
                message = f"nested lists insert more than {MAX_LIST_ITEMS:,} items"
                self.report(node, "reference/too-many", message)
            return []
        return items

    def _substitute_param(self, node: ScalarNode, name: str) -> ScalarNode:
        value = self._known.params[name]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        # The value is not in the source here, so keep the name's span.
        found = replace(node, text=text, value=value)
        self.substituted[id(found)] = f"${name}"
        return found

    def _report_unknown(self, node: ScalarNode, name: str, known: Iterable[str]) -> None:
        if self._known.broken is None or name in self._known.broken:
            return
        close = did_you_mean(name, known)
        hint = close.replace("`", "`$", 1) if close else None
        if hint is None and id(node) in self._glob_nodes:
            hint = f"for a name that begins with `$`, write `?{name}`"
        self.report(node, "reference/unknown-name", f"no param or list named `{name}`", hint)


def _lists_by_name(section: MappingNode) -> Iterator[tuple[str, SequenceNode]]:
    for key, value in section.entries:
        if isinstance(value, SequenceNode):
            yield key.text, value


def _has_reference(node: Node) -> bool:
    if isinstance(node, ScalarNode):
        return _reference_name(node) is not None
    if isinstance(node, SequenceNode):
        return any(map(_has_reference, node.items))
    return any(_has_reference(value) for _, value in node.entries)


def _reference_name(node: Node) -> str | None:
    return scalars.parse_reference(node.value) if isinstance(node, ScalarNode) else None
