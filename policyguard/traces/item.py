"""What reading a trace gives: events, and what was passed over."""

from __future__ import annotations

import msgspec

from policyguard.model.errors import PolicyguardError
from policyguard.model.event import Event


class Skipped(msgspec.Struct, frozen=True):
    """A file, a line or an entry that was not read, and why.

    `line` counts from 1 where the file is read line by line; None speaks of the whole file, or
    of an entry that `reason` names.
    """

    file: str
    line: int | None
    reason: str


Item = Event | Skipped


class TraceError(PolicyguardError):
    """A path on the command line that stands for no file; the message names it."""


class UnreadableError(Exception):
    """A file, or the rest of one, from which no JSON can be had; the message is the reason."""


def cannot_read(error: OSError) -> str:
    """The reason why a file cannot be read, in the words of the system."""
    return f"cannot be read: {error.strerror or error}"
