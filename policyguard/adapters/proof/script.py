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


class Conversation(NamedTuple):
    """What a script goes by: a sub-agent's conversation begins with its own prompt.

    `first` is the text before the first call, `last` that of the last message, as JSON; `number` is
    how many steps there were so far.
    """

    first: str
    number: int
    last: str


Script = Callable[[Conversation], Step]
"""Returns the step that comes next."""


def follow(steps: Sequence[Step], final: str = "done") -> Script:
    """Return the script of one conversation."""
    return lambda said: steps[said.number] if said.number < len(steps) else final


def delegate(spawn: Sequence[Step], prompt: str, attempt: Script) -> Script:
    """Return a script whose main agent spawns a sub-agent, recognized by its prompt."""
    main = follow(spawn)
    return lambda said: (attempt if prompt in said.first else main)(said)
