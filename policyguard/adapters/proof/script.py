"""What a scripted model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class ToolCall(NamedTuple):
    """A call that the model makes; some hosts group tools in a `namespace`."""

    tool: str
    args: dict[str, Any]
    namespace: str = ""


Step = Sequence[ToolCall] | str
"""The calls of one message of the model, or its final text."""

Script = Callable[[str, int], Step]
"""Returns the step of a conversation, from the text before its first call and the number of steps
so far: a sub-agent's conversation begins with its own prompt."""


def follow(steps: Sequence[Step], final: str = "done") -> Script:
    """Return the script of one conversation."""
    return lambda _, number: steps[number] if number < len(steps) else final
