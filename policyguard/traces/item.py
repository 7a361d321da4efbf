"""Items read from a trace: events, and parts that were skipped."""

from __future__ import annotations

import msgspec

from policyguard.model.errors import PolicyguardError
from policyguard.model.event import Event


class Skipped(msgspec.Struct, frozen=True):
    """A file, line or part of a file that was not read, and the reason.

    `line` counts from 1 in a file of lines; None if the reason concerns the whole file, or names
    the part itself.
    """

    file: str
    line: int | None
    reason: str


Item = Event | Skipped


class TraceError(PolicyguardError):
    """A path on the command line that matches no file."""


class UnreadableError(PolicyguardError):
    """A file, or the rest of one, that yields no JSON; the message is the reason."""


def cannot_read(error: UnreadableError | OSError) -> str:
    """Return why a file cannot be read."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error)
