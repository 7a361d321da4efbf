"""Advice waits for the result it is to be attached to."""

from __future__ import annotations


class Advice:
    """Texts by call, or by batch: every result of a batch carries what any of its calls was told.

    At most `most` are kept; the oldest goes first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.waiting: dict[str, list[str]] = {}

    def give(self, to: str, text: str) -> None:
        """Keep a text for the results of a call or batch."""
        self.waiting.setdefault(to, []).append(text)
        if len(self.waiting) > self._most:
            del self.waiting[next(iter(self.waiting))]

    def take(self, to: str, *, last: bool) -> str:
        """Return the texts for a result; forget them where it is the last that wants them."""
        texts = self.waiting.pop(to, None) if last else self.waiting.get(to)
        return "\n".join(texts) if texts else ""
