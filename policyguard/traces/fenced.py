"""The one command in the text of a message: how mini-swe-agent 1 says what it wants to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_SPACE = re.compile(r"\s*")
_CLOSING = "\n```"


def the_command(text: str, tag: str) -> str | None:
    """The content of the one block fenced as `tag`; None where there is none, or more than one.

    Finds what the agent's own expression finds: the fence and the tag, white space that ends a
    line, and all up to the next line that begins with a fence. The agent runs nothing where it
    finds two. Takes time linear in the text, which the agent's expression does not.
    """
    blocks = list(islice(_blocks(text, f"```{tag}"), 2))
    return blocks[0] if len(blocks) == 1 else None


def _blocks(text: str, opening: str) -> Iterator[str]:
    start = text.find(opening)
    while start >= 0:
        after = start + len(opening)
        space = _SPACE.match(text, after)
        newline = text.rfind("\n", after, space.end() if space else after)
        if newline < 0:
            start = text.find(opening, after)
            continue
        end = text.find(_CLOSING, newline + 1)
        if end < 0:
            # Of several line ends the last may itself belong to the closing fence.
            if text.startswith(_CLOSING, newline) and text.find("\n", after, newline) >= 0:
                yield ""
            return
        yield text[newline + 1 : end].strip()
        start = text.find(opening, end + len(_CLOSING))
