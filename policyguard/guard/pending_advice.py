"""Advice that waits for the results it is attached to."""

from __future__ import annotations


class PendingAdvice:
    """Texts by call or batch: every result of a batch carries the advice of all its calls.

    At most `max_entries` are kept; the oldest is dropped first.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self.texts: dict[str, list[str]] = {}

    def add(self, call_or_batch: str, text: str) -> None:
        """Add a text for the results of a call or batch."""
        self.texts.setdefault(call_or_batch, []).append(text)
        if len(self.texts) > self._max_entries:
            del self.texts[next(iter(self.texts))]

    def take(self, call_or_batch: str, *, is_last: bool) -> str:
        """Return the texts for a result; forget them if it is the last one."""
        texts = self.texts.pop(call_or_batch, None) if is_last else self.texts.get(call_or_batch)
        return "\n".join(texts) if texts else ""
