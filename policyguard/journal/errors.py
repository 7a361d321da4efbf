"""What may go wrong with a journal."""

from __future__ import annotations

from pathlib import Path

from policyguard.model.errors import PolicyguardError


class JournalError(PolicyguardError):
    """An event was not written down, or a journal cannot be read.

    The message names the place and says what to do. Nothing of the event is left in the file.
    """

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


class AlteredError(JournalError):
    """A journal is not as it was left: it takes no more events, and no state is rebuilt from it."""
