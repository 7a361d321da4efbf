"""Errors of stores."""

from __future__ import annotations

from pathlib import Path

import msgspec

from policyguard.model.errors import PolicyguardError


class StoreError(PolicyguardError):
    """State cannot be read or written; the message names the path and the remedy."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


DECODE_ERRORS = (msgspec.DecodeError, RecursionError, TypeError, ValueError)
"""The errors raised by decoding data that was damaged or altered."""

RESTORE_HINT = "move it away (a new one is made) or restore a backup"
"""The remedy for a damaged store."""


def damaged_error(path: Path, what: str, error: Exception) -> StoreError:
    """Return the error for an unreadable record in an open store."""
    return StoreError(path, f"is damaged: {what} cannot be read ({error})", RESTORE_HINT)


class SessionBusyError(StoreError):
    """Another live process, or another guard of this one, holds the session.

    Close it there, or use another session id.
    """
