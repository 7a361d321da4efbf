"""What a person should see in a tool's definition before it is pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from policyguard.model.pins import PinWarning
from policyguard.pins.definition import PART_WORDS, iter_texts
from policyguard.pins.lock import PinnedServer
from policyguard.report.odd_characters import describe_odd_characters, skeleton

_MAX_ODD = 5
"""Odd characters that are named for one part of a tool."""


def find_warnings(
    name: str, server: PinnedServer, find_patterns: Callable[[str], list[str]]
) -> Iterator[PinWarning]:
    """Yield what is odd in a server's tools: patterns found, hidden and look-alike characters."""
    looks: dict[str, str] = {}
    for tool, pinned in server.tools.items():
        other = looks.setdefault(skeleton(tool), tool)
        if other != tool:
            yield PinWarning(name, tool, "name", f"looks like that of `{other}`")
        for odd in describe_odd_characters(tool, is_name=True):
            yield PinWarning(name, tool, "name", odd)
        for part, value in pinned.definition.items():
            texts = [*iter_texts(value)]
            words = PART_WORDS.get(part, part)
            for pattern in find_patterns("\n".join(texts)):
                yield PinWarning(name, tool, words, f"the pattern `{pattern}` occurs")
            found = {one: None for text in texts for one in describe_odd_characters(text)}
            for text in [*found][:_MAX_ODD]:
                yield PinWarning(name, tool, words, text)
            if len(found) > _MAX_ODD:
                yield PinWarning(name, tool, words, f"and {len(found) - _MAX_ODD} more of these")
