"""A policy file as a tree with the position of every key and value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import Any, NamedTuple

from policyguard.engines.source import SourceText
from policyguard.engines.yaml_positions import ValuePositions, locate_value
from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.model.policy import Value

Path = tuple[str | int, ...]
"""The keys of mappings and indexes of sequences from the root to a value."""


@dataclass(frozen=True, eq=False)
class _LocatedNode:
    """A node with its offsets in the source, without anchor and tag."""

    source: SourceText = field(repr=False)
    start: int
    end: int

    @cached_property
    def span(self) -> Span:
        """Its span, a block scalar's from its `|`, a collection's to the end of its last child."""
        return self.source.span(self.start, self.end)


@dataclass(frozen=True, eq=False)
class ScalarNode(_LocatedNode):
    """A single value. `text` is its text before it was resolved to a number, boolean or null.

    `style` is `'`, `"`, `|`, `>`, or empty for a plain scalar.
    """

    style: str
    text: str
    value: Value | None

    @cached_property
    def _positions(self) -> ValuePositions | None:
        return locate_value(self.source.text, self.start, self.end, self.style, self.text)

    def line_span(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        """Return the span in the file of a range of the *value*, given by lines and columns.

        They count from 1 within the value, as an engine that was given the value reports them; the
        end is exclusive. A position beyond the value is its end.
        """
        positions = self._positions
        if positions is None:
            return self.span
        first, last = self._offset(line, column), self._offset(end_line, end_column)
        start = positions.start_of(first)
        return self.source.span(start, positions.end_of(last) if last > first else start)

    def subspan(self, start: int, end: int) -> Span:
        """Return the span in the file of a range of offsets in the value."""
        positions = self._positions
        if positions is None:
            return self.span
        return self.source.span(positions.start_of(start), positions.end_of(max(end, start)))

    def _offset(self, line: int, column: int) -> int:
        lines = self.text.split("\n")
        before = sum(len(text) + 1 for text in lines[: line - 1])
        width = len(lines[line - 1]) if line <= len(lines) else 0
        return min(before + min(column - 1, width), len(self.text))


@dataclass(frozen=True, eq=False)
class SequenceNode(_LocatedNode):
    """A list."""

    items: tuple[Node, ...]

    def with_items(self, items: Iterable[Node]) -> SequenceNode:
        """Return a sequence at the same position with these items; itself if they are its own."""
        found = tuple(items)
        is_same = len(found) == len(self.items) and all(map(is_, found, self.items))
        return self if is_same else SequenceNode(self.source, self.start, self.end, found)


@dataclass(frozen=True, eq=False)
class MappingNode(_LocatedNode):
    """Unique string keys with their values, in order."""

    entries: tuple[tuple[ScalarNode, Node], ...]
    _index: dict[str, tuple[ScalarNode, Node]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        index = {key.text: (key, value) for key, value in self.entries}
        object.__setattr__(self, "_index", index)

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def get(self, key: str) -> Node | None:
        """Return the value of `key`, or None."""
        entry = self._index.get(key)
        return entry[1] if entry else None

    def key_node(self, key: str) -> ScalarNode:
        """Return the node of `key` itself."""
        return self._index[key][0]

    def with_entries(self, entries: Iterable[tuple[ScalarNode, Node]]) -> MappingNode:
        """Return a mapping at the same position with these entries; itself if they are its own."""
        found = tuple(entries)
        is_same = len(found) == len(self.entries) and all(map(_is_same_entry, found, self.entries))
        return self if is_same else MappingNode(self.source, self.start, self.end, found)


Node = ScalarNode | SequenceNode | MappingNode


def _is_same_entry(one: tuple[ScalarNode, Node], other: tuple[ScalarNode, Node]) -> bool:
    return one[0] is other[0] and one[1] is other[1]


class ParsedDocument(NamedTuple):
    """The tree of a file (None if it is unusable), its diagnostics and text."""

    source: SourceText
    root: Node | None
    diagnostics: list[Diagnostic]


def to_plain(node: Node) -> Any:
    """Convert the tree to dicts, lists and scalars."""
    if isinstance(node, MappingNode):
        return {key.text: to_plain(value) for key, value in node.entries}
    if isinstance(node, SequenceNode):
        return [to_plain(item) for item in node.items]
    return node.value


def to_outline(node: Node) -> Any:
    """Convert `node` as `to_plain` does, but leave out the values of a mapping and all items."""
    if isinstance(node, MappingNode):
        return dict.fromkeys(node)
    return [] if isinstance(node, SequenceNode) else node.value


def get_child(node: Node, step: str | int) -> Node | None:
    """Return the child of `node` at a key or index, or None."""
    if isinstance(node, MappingNode) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def descend(node: Node, path: Path) -> tuple[Node, Path]:
    """Follow `path` as far as it exists; return the node reached and the rest of the path."""
    for depth, step in enumerate(path):
        child = get_child(node, step)
        if child is None:
            return node, path[depth:]
        node = child
    return node, ()


def remove_paths(node: Node, removed: frozenset[Path], path: Path = ()) -> Node:
    """Return the tree without the nodes at the paths in `removed`; `path` leads to `node`."""
    if isinstance(node, MappingNode):
        return node.with_entries(
            (key, remove_paths(value, removed, (*path, key.text)))
            for key, value in node.entries
            if (*path, key.text) not in removed
        )
    if isinstance(node, SequenceNode):
        return node.with_items(
            remove_paths(item, removed, (*path, index))
            for index, item in enumerate(node.items)
            if (*path, index) not in removed
        )
    return node
