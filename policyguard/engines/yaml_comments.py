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
    taken = sorted(_scalar_ranges(root))
    starts = [start for start, _ in taken]
    position = 0
    while (found := _HASH.search(text, position)) is not None:
        before = bisect_right(starts, found.start()) - 1
        if before >= 0 and found.start() < taken[before][1]:
            position = taken[before][1]
            continue
        position = found.end()
        line = text.rfind("\n", 0, found.start()) + 1
        alone = not text[line : found.start()].strip()
        yield Comment(found[0][1:].strip(), *found.span(), alone)


def _scalar_ranges(node: Node) -> set[tuple[int, int]]:
    """Return the range of each scalar's text, keys included; a block scalar's is below its `|`."""
    found: set[tuple[int, int]] = set()
    waiting = [node]
    seen: set[int] = set()
    while waiting:
        here = waiting.pop()
        if id(here) in seen:  # an alias stands for the same node again
            continue
        seen.add(id(here))
        if isinstance(here, ScalarNode):
            start = here.start
            if here.style in ("|", ">"):
                header = here.source.text.find("\n", start, here.end)
                start = here.end if header < 0 else header
            found.add((start, here.end))
        elif isinstance(here, MappingNode):
            for key, value in here.entries:
                waiting += (key, value)
        else:
            waiting += here.items
    return found
