"""The tools that an agent is offered: calls of any other are refused, with the names that exist."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.model.decision import MAX_MESSAGE_CHARS, Violation
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.effect import Effect
from policyguard.model.text import sanitize
from policyguard.model.tool_name import host_tool_names

UNKNOWN_TOOL = "session/unknown-tool"
"""The violation of a call of a tool that the agent is not offered."""


class OfferedTools:
    """The names of the tools, in the host's order. `was_listed`: the agent has been shown them."""

    __slots__ = ("_accepted", "names", "was_listed")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.was_listed = False
        self._accepted = frozenset(self.names)

    def covers(self, attempt: Attempt) -> bool:
        """Whether the attempt is of one of the tools, or of a pseudo-tool such as `@spawn`."""
        tool, server = attempt.tool, attempt.server
        names = (tool, attempt.host_tool, *(host_tool_names(tool, server) if server else ()))
        return tool.startswith("@") or not self._accepted.isdisjoint(names)

    def violation(self, attempt: Attempt) -> Violation:
        """Return the violation of a call of another tool. The first lists the tools."""
        text = f"there is no tool `{_shorten(attempt.shown_tool)}`"
        hint = did_you_mean(attempt.shown_tool[:_MAX_NAME_CHARS], self.names)
        if hint is not None:
            text = f"{text}; {sanitize(hint)}"
        if not self.was_listed:
            text = f"{text}{' You' if hint else '; you'} have "
            text += self._list(_MAX_TEXT_CHARS - len(text))
        return Violation(UNKNOWN_TOOL, Effect.BLOCK, "unknown_tool", text, _INSTEAD)

    def _list(self, room: int) -> str:
        """Return as many names as there is room for (characters)."""
        if not self.names:
            return "no tools"
        shown: list[str] = []
        for name in self.names:
            quoted = f"`{_shorten(name)}`"
            room -= len(quoted) + len(", ")
            if room < 0:
                return f"{', '.join(shown)} and {len(self.names) - len(shown)} more"
            shown.append(quoted)
        return ", ".join(shown)


def _shorten(name: str) -> str:
    name = sanitize(name[: _MAX_NAME_CHARS + 1])
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}…"


_MAX_NAME_CHARS = 64  # no API takes longer ones
_INSTEAD = "use a tool that you have, or report what is missing"
_MAX_TEXT_CHARS = MAX_MESSAGE_CHARS - 2 * _MAX_NAME_CHARS
"""What is left of a message beside its head, the id and `_INSTEAD`."""
