"""The attachments of an inspect_ai sample: long texts that are stored once and referred to."""

from __future__ import annotations

from typing import Any

_PREFIX = "attachment://"

MAX_CHARACTERS = 1 << 26
"""Characters that all references of a sample may expand to: many references to one long text could
fill any memory."""


class Attachments:
    """A resolver that replaces references with their texts."""

    def __init__(self, texts: dict[str, Any]) -> None:
        self._texts = texts
        self._remaining = MAX_CHARACTERS
        self.is_truncated = False
        """Whether references were left because their texts are too long."""

    def resolve(self, value: object) -> object:
        """Return the value with each reference replaced; references inside texts stay."""
        if not self._texts:
            return value
        root = [value]
        queue: list[tuple[Any, Any]] = [(root, 0)]
        while queue:
            holder, key = queue.pop()
            part = holder[key]
            if isinstance(part, str):
                holder[key] = self._resolve_text(part)
            elif isinstance(part, list):
                holder[key] = copy = list(part)
                queue += [(copy, index) for index in range(len(copy))]
            elif isinstance(part, dict):
                holder[key] = fields = dict(part)
                queue += [(fields, name) for name in fields]
        return root[0]

    def _resolve_text(self, text: str) -> str:
        if not text.startswith(_PREFIX):
            return text
        attached = self._texts.get(text.removeprefix(_PREFIX))
        if not isinstance(attached, str):
            return text
        if len(attached) > self._remaining:
            self.is_truncated = True
            return text
        self._remaining -= len(attached)
        return attached
