"""What may go wrong where state is kept."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """State cannot be read or written; the message names the place and says what to do."""

    def __init__(self, place: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{place}: {reason}; {remedy}")
        self.place = place
        self.reason = reason
        self.remedy = remedy


class SessionBusyError(StoreError):
    """The session belongs to another process that is still alive."""
