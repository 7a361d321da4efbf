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


class MissingLinesError(AlteredError):
    """A session is to go on here, and neither this host nor the store has all its lines.

    Another host may have them: one that began it with a file, say. Else they were removed.
    """

    def __init__(self, path: Path, count: int) -> None:
        JournalError.__init__(
            self,
            path,
            f"is not here, and the store lacks lines of the {count} that were anchored",
            "open the session once on the host that has its journal, or copy that file here; "
            "if no host has it, it was removed: use another session id",
        )
