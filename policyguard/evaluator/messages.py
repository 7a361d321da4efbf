"""Texts of violations: the policy's own messages with placeholders, and helpers for the engine's.

Values from a call are untrusted: they are redacted, truncated, and stripped of control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from policyguard.model.amounts import format_number
from policyguard.model.text import sanitize

NEVER_ALLOWED = "this call is not allowed at all"
"""The text of a limit whose `max` is 0."""

_JSON_TYPES = (bool, int, list, tuple, dict)
MAX_VALUE_CHARS = 200
"""Characters of one value in a message (POLICY_LANGUAGE §3)."""


_KEPT_FIELDS = frozenset(("call.tool", "call.server", "call.class"))
"""Fields of calls that every journal has."""


class MessageTemplate(msgspec.Struct, frozen=True, eq=False):
    """A message with placeholders: dotted fields of `call` and `tags`, and a violation's figures.

    `parts` alternates text and dotted paths, beginning with text; `redact` masks secrets.
    """

    parts: Sequence[str]
    redact: Callable[[str], str]

    @property
    def quotes(self) -> bool:
        """Whether the text may have words of a call in it."""
        fields = self.parts[1::2]
        return any(one.startswith("call") and one not in _KEPT_FIELDS for one in fields)

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text with each placeholder replaced; an absent value by `(absent)`."""
        parts = list(self.parts)
        for index in range(1, len(parts), 2):
            parts[index] = quote_value(_look_up(values, parts[index].split(".")), self.redact)
        return "".join(parts)


def quote_call(*templates: MessageTemplate | None) -> bool:
    """Whether one of these texts may have words of a call in it."""
    return any(template is not None and template.quotes for template in templates)


def _look_up(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return None
        values = values[name]
    return values


def quote_value(value: Any, redact: Callable[[str], str] | None = None) -> str:
    """Return an untrusted value as it may stand in a message."""
    if value is None:
        return "(absent)"
    if isinstance(value, float):
        text = format_number(value)
    else:
        text = _to_json(value) if isinstance(value, _JSON_TYPES) else str(value)
    if redact is not None:  # first: a truncated secret would not be recognised
        text = redact(text[: MAX_VALUE_CHARS * MAX_VALUE_CHARS])
    text = sanitize(text[: MAX_VALUE_CHARS + 1])
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"


def _to_json(value: Any) -> str:
    import json  # slow import

    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"


def format_times(count: int) -> str:
    """Format a count: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def format_streak(count: int, how: str = "in a row") -> str:
    """Format the length of a streak; a streak of one is just `once`."""
    return format_times(count) if count == 1 else f"{format_times(count)} {how}"
