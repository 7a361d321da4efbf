"""What may go wrong where state is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from policyguard.model.errors import PolicyguardError


class StoreError(PolicyguardError):
    """State cannot be read or written; the message names the place and says what to do."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy}")
        self.path = path
        self.reason = reason
        self.remedy = remedy


DECODE_ERRORS = (msgspec.DecodeError, RecursionError, TypeError, ValueError)
"""What reading raises of what was not written so: damaged, or changed by somebody."""

RESTORE_HINT = "move it away (a new one is made) or bring it back from a backup"
"""What to do about a store that is damaged."""


def damaged_error(path: Path, what: str, error: Exception) -> StoreError:
    """The store is open, and something in it cannot be read."""
    return StoreError(path, f"is damaged: {what} cannot be read ({error})", RESTORE_HINT)


class SessionBusyError(StoreError):
    """The session is open elsewhere: end it there, or use another session id.

    In another process that is still alive, or in another guard of this one.
    """
