"""Advice waits for the result it is to be attached to."""

from __future__ import annotations


class PendingAdvice:
    """Texts by call, or by batch: every result of a batch carries what any of its calls was told.

    At most `most` are kept; the oldest goes first.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self.texts: dict[str, list[str]] = {}

    def add(self, call_or_batch: str, text: str) -> None:
        """Keep a text for the results of a call or batch."""
        self.texts.setdefault(call_or_batch, []).append(text)
        if len(self.texts) > self._max_entries:
            del self.texts[next(iter(self.texts))]

    def take(self, call_or_batch: str, *, is_last: bool) -> str:
        """Return the texts for a result; forget them where it is the last that wants them."""
        texts = self.texts.pop(call_or_batch, None) if is_last else self.texts.get(call_or_batch)
        return "\n".join(texts) if texts else ""
