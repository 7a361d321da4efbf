"""The comments of a YAML file, which its parser drops.

Every scalar of the tree has a position, and outside scalars a `#` begins a comment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode

_HASH = re.compile(r"#[^\n]*")


class Comment(NamedTuple):
    """A comment: `text` follows its `#`; `start` and `end` are offsets in the source.

    `is_whole_line` means that the line holds nothing else.
    """

    text: str
    start: int
    end: int
    is_whole_line: bool


def find_comments(root: Node) -> Iterator[Comment]:
    """Yield every comment of the tree's file, in order."""
    text = root.source.text
    scalars = sorted(_scalar_ranges(root))
    starts = [start for start, _ in scalars]
    position = 0
    while (match := _HASH.search(text, position)) is not None:
        before = bisect_right(starts, match.start()) - 1
        if before >= 0 and match.start() < scalars[before][1]:
            position = scalars[before][1]
            continue
        position = match.end()
        line = text.rfind("\n", 0, match.start()) + 1
        is_whole_line = not text[line : match.start()].strip()
        yield Comment(match[0][1:].strip(), *match.span(), is_whole_line)


def _scalar_ranges(node: Node) -> set[tuple[int, int]]:
    """Return the range of each scalar's text, keys included; a block scalar's is below its `|`."""
    ranges: set[tuple[int, int]] = set()
    pending = [node]
    seen_ids: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen_ids:  # an alias repeats the same node
            continue
        seen_ids.add(id(node))
        if isinstance(node, ScalarNode):
            start = node.start
            if node.style in ("|", ">"):
                header_end = node.source.text.find("\n", start, node.end)
                start = node.end if header_end < 0 else header_end
            ranges.add((start, node.end))
        elif isinstance(node, MappingNode):
            for key, value in node.entries:
                pending += (key, value)
        else:
            pending += node.items
    return ranges
