"""NaN and infinity, which policies forbid and tests need.

A tool may report such a score, and a model may send such an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Diagnostic, Span

_NONFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class _TreeAndDiagnostics(NamedTuple):
    root: Node
    diagnostics: list[Diagnostic]


def allow_nonfinite(root: Node, diagnostics: list[Diagnostic]) -> _TreeAndDiagnostics:
    """Convert NaN and infinity in the tests of a file, and drop the diagnostics about them."""
    if not isinstance(root, MappingNode):
        return _TreeAndDiagnostics(root, diagnostics)
    spans: set[Span] = set()
    tree = root.with_entries(
        (key, _convert(value, spans) if key.text == "tests" else value)
        for key, value in root.entries
    )
    kept = [
        found for found in diagnostics if found.code != "yaml/number" or found.span not in spans
    ]
    return _TreeAndDiagnostics(tree, kept)


def _convert(node: Node, spans: set[Span]) -> Node:
    if isinstance(node, MappingNode):
        return node.with_entries((key, _convert(value, spans)) for key, value in node.entries)
    if isinstance(node, SequenceNode):
        return node.with_items(_convert_items(node, spans))
    if node.style or not _NONFINITE.fullmatch(node.text):
        return node
    spans.add(node.span)
    return _to_number(node)


def _convert_items(node: SequenceNode, spans: set[Span]) -> Iterator[Node]:
    for item in node.items:
        yield _convert(item, spans)


def _to_number(node: ScalarNode) -> ScalarNode:
    return replace(node, value=float(node.text.replace(".", "", 1)))
