"""NaN and infinity, which no policy may hold, and which tests must be able to say.

A tool may well report a score that is no number, and a model send such an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from policyguard.engines.yaml_tree import Mapping, Node, Scalar, Sequence
from policyguard.model.diagnostic import Diagnostic, Span

_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class _Read(NamedTuple):
    root: Node
    diagnostics: list[Diagnostic]


def with_not_finite(root: Node, diagnostics: list[Diagnostic]) -> _Read:
    """The tree with NaN and infinity in its tests, and the diagnostics without those on them."""
    if not isinstance(root, Mapping):
        return _Read(root, diagnostics)
    spans: set[Span] = set()
    tree = root.with_entries(
        (key, _read(value, spans) if key.text == "tests" else value) for key, value in root.entries
    )
    kept = [one for one in diagnostics if one.code != "yaml/number" or one.span not in spans]
    return _Read(tree, kept)


def _read(node: Node, spans: set[Span]) -> Node:
    if isinstance(node, Mapping):
        return node.with_entries((key, _read(value, spans)) for key, value in node.entries)
    if isinstance(node, Sequence):
        return node.with_items(_items(node, spans))
    if node.style or not _NOT_FINITE.fullmatch(node.text):
        return node
    spans.add(node.span)
    return _number(node)


def _items(node: Sequence, spans: set[Span]) -> Iterator[Node]:
    for item in node.items:
        yield _read(item, spans)


def _number(node: Scalar) -> Scalar:
    return replace(node, value=float(node.text.replace(".", "", 1)))
