"""The text of a violation: the policy's own message with its placeholders, or the engine's words.

Whatever comes out of a call is untrusted: it is quoted, cut, and stripped of control characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policyguard.model.amounts import format_number
from policyguard.model.text import sanitize

NEVER_ALLOWED = "this call may not be made even once"
"""What a limit of 0 says."""

_JSON_TYPES = (bool, int, list, tuple, dict)
"""What is shown as JSON; a time is shown as it is written."""
MAX_VALUE_CHARS = 200
"""Characters of one value that a message shows (POLICY_LANGUAGE §3)."""


class MessageTemplate:
    """A message with placeholders: dotted fields of `call` and `tags`, and a violation's figures.

    `parts` alternates literal text and dotted paths, beginning with text. `redact` blots out of a
    value what nobody may see.
    """

    __slots__ = ("parts", "redact")

    def __init__(self, parts: Sequence[str], redact: Callable[[str], str]) -> None:
        self.parts = tuple(parts)
        self.redact = redact

    def render(self, values: Mapping[str, Any]) -> str:
        """The text, each placeholder replaced by its value; an absent one by `(absent)`."""
        text = list(self.parts)
        for place in range(1, len(text), 2):
            text[place] = quote_value(_look_up(values, text[place].split(".")), self.redact)
        return "".join(text)


def _look_up(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return None
        values = values[name]
    return values


def quote_value(value: Any, redact: Callable[[str], str] | None = None) -> str:
    """An untrusted value, fit to stand in a message."""
    if value is None:
        return "(absent)"
    if isinstance(value, float):
        text = format_number(value)
    else:
        text = _to_json(value) if isinstance(value, _JSON_TYPES) else str(value)
    if redact is not None:
        text = redact(
            text[: MAX_VALUE_CHARS * MAX_VALUE_CHARS]
        )  # before it is cut, or half a secret would not be seen
    text = sanitize(text[: MAX_VALUE_CHARS + 1])
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"


def format_duration(nanoseconds: int) -> str:
    """A span of time as a person would write it: `45s`, `2m`, `1h30m`, `3d`."""
    total = nanoseconds / 1e9
    if total < 60:
        return f"{format_number(total)}s"
    parts = []
    rest = int(total)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def format_times(count: int) -> str:
    """`once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def format_streak(count: int, how: str = "in a row") -> str:
    """The same of what came one after the other; once is no row."""
    return format_times(count) if count == 1 else f"{format_times(count)} {how}"
