"""Warnings of what a server or a client does again and again, which do not fill the log."""

from __future__ import annotations

from policyguard.guard.host_log import warn

_MAX_EACH = 3
"""How often a warning is logged before only its count is, at each power of ten."""


class BoundedLog:
    """Logs the first few of the warnings that have the same text, then how many there were.

    The texts are the program's own: each is kept.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def warn(self, text: str) -> None:
        """Log a warning, unless there were many like it."""
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count <= _MAX_EACH:
            warn(text)
        elif str(count).strip("0") == "1":
            warn(f"{text} ({count} times so far)")
