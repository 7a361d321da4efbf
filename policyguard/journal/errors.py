"""Errors of journals."""

from __future__ import annotations

from pathlib import Path

from policyguard.model.errors import PolicyguardError


class JournalError(PolicyguardError):
    """An event was not written, or a journal cannot be read; nothing of the event is in the file.

    The message names the path and the remedy.
    """

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


class AlteredError(JournalError):
    """A journal was altered: it accepts no events, and no state is rebuilt from it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            path,
            f"was altered: {reason}",
            "check it with `policyguard journal verify --store STORE`, or use another session id",
        )
