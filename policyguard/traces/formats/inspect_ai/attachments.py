"""The attachments of an inspect_ai sample: long texts that stand elsewhere, once each."""

from __future__ import annotations

from typing import Any

_PREFIX = "attachment://"

MAX_CHARACTERS = 1 << 26
"""How much text the references of one sample may stand for in all: a short log can name one long
text so often that it would fill any memory."""


class Attachments:
    """Puts the texts back where they are referred to."""

    def __init__(self, texts: dict[str, Any]) -> None:
        self._texts = texts
        self._remaining = MAX_CHARACTERS
        self.is_truncated = False
        """Whether references had to be left, for they stand for too much."""

    def resolve(self, value: object) -> object:
        """The value, with the text of each reference in it. References in texts stay."""
        if not self._texts:
            return value
        root = [value]
        places: list[tuple[Any, Any]] = [(root, 0)]
        while places:
            holder, key = places.pop()
            part = holder[key]
            if isinstance(part, str):
                holder[key] = self._resolve_text(part)
            elif isinstance(part, list):
                holder[key] = copy = list(part)
                places += [(copy, index) for index in range(len(copy))]
            elif isinstance(part, dict):
                holder[key] = fields = dict(part)
                places += [(fields, name) for name in fields]
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
