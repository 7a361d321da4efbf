"""Check and repair a session's file when it is opened for writing.

From the anchor on, every line must follow the previous one; such lines are adopted (a process died
before it anchored them). A torn last line is cut, or completed if only its line feed is missing.
Anything else has another cause: the file stays unchanged and accepts no events. Lines before the
anchor are left to `verify`, so that opening costs the same however long the journal is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from policyguard.journal.chain import (
    HASH_BYTES,
    BrokenChainError,
    ChainPosition,
    Hasher,
    advance,
    parse_link,
)
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.findings import VerifyFinding, make_finding
from policyguard.store.protocol import Anchor

FindingCallback = Callable[[VerifyFinding], None]


def recover(
    descriptor: int,
    path: Path,
    session: str,
    anchor: Anchor | None,
    hasher: Hasher,
    on_finding: FindingCallback,
) -> ChainPosition:
    """Return the position of the next line. Raises `AlteredError`; `OSError` if the disk fails."""
    position = start = _anchored_position(descriptor, path, anchor)
    tail = b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        require_same_key(path, file.readline(), hasher)
        file.seek(start.size)
        for line in file:
            if not line.endswith(b"\n"):
                tail = line
                break
            try:
                position = advance(hasher, session, position, line[:-1])
            except BrokenChainError as error:
                raise AlteredError(path, f"line {position.count + 1} {error}") from None
    if tail:  # a dying process left it unfinished
        try:
            position = advance(hasher, session, position, tail)
        except BrokenChainError:
            os.ftruncate(descriptor, position.size)
            message, number = f"cut {len(tail)} bytes of an unfinished line", position.count + 1
        else:
            os.write(descriptor, b"\n")
            message, number = "added a missing line feed", position.count
        on_finding(make_finding("journal/torn-line", path, message, number))
    if position.count > start.count:
        message = f"adopted {position.count - start.count} lines beyond the anchor"
        on_finding(make_finding("journal/unanchored", path, message))
    return position


def _anchored_position(descriptor: int, path: Path, anchor: Anchor | None) -> ChainPosition:
    if anchor is None:
        return ChainPosition()
    size = os.fstat(descriptor).st_size
    if size < anchor.size:
        raise AlteredError(path, f"has {size} bytes, but {anchor.size} were anchored")
    end = os.pread(descriptor, HASH_BYTES, anchor.size - HASH_BYTES)
    if end != b'"hash":"%b"}\n' % anchor.hash.encode():
        raise AlteredError(path, f"line {anchor.count} differs from the anchored one")
    return ChainPosition(anchor.chain, anchor.count, anchor.hash, anchor.size)


def require_regular(descriptor: int, path: Path) -> None:
    """Raise `JournalError` for a pipe or device."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise JournalError(path, "is not a regular file", "move it away")


def require_same_key(path: Path, first: bytes, hasher: Hasher) -> None:
    """Raise `JournalError` for another key: with lines of two keys, `verify` fails with either."""
    link = parse_link(first[:-1])
    if link is not None and link.key_id != hasher.key_id:
        raise JournalError(
            path,
            "was begun with another key, or without one",
            "use that key, or another session id",
        )
