"""Opening a session's file to write on: what is there is checked, and repaired where that is safe.

From the anchor on, every line must follow the one before: those are adopted (a process died before
it anchored them). What comes after the last line feed was torn off by a dying process: it is cut,
or completed where only the line feed is missing. Anything else has another cause, and then nothing
is changed and nothing more is written. What lies before the anchor is `verify`'s to read: opening
costs the same however long the journal is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from policyguard.journal.chain import HASH_BYTES, Hasher, parse_link
from policyguard.journal.chain_position import BrokenChainError, ChainPosition, advance
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
    """Where the next line goes. Raises `AlteredError`; `OSError` where the disk fails."""
    start = _anchored_position(descriptor, path, anchor)
    position = start
    rest = b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        require_same_key(path, file.readline(), hasher)
        file.seek(start.size)
        for line in file:
            if not line.endswith(b"\n"):
                rest = line
                break
            try:
                position = advance(hasher, session, position, line[:-1])
            except BrokenChainError as error:
                raise altered_error(path, f"line {position.count + 1} {error}") from None
    position = _repair_tail(descriptor, path, session, position, rest, hasher, on_finding)
    if position.count > start.count:
        lines = position.count - start.count
        on_finding(
            make_finding(
                "journal/unanchored", path, f"{lines} lines beyond the anchor were adopted"
            )
        )
    return position


def _anchored_position(descriptor: int, path: Path, anchor: Anchor | None) -> ChainPosition:
    if anchor is None:
        return ChainPosition()
    size = os.fstat(descriptor).st_size
    if size < anchor.size:
        raise altered_error(path, f"has {size} bytes where {anchor.size} were anchored")
    end = os.pread(descriptor, HASH_BYTES, anchor.size - HASH_BYTES)
    if end != b'"hash":"%b"}\n' % anchor.hash.encode():
        raise altered_error(path, f"line {anchor.count} is not the one that was anchored")
    return ChainPosition(anchor.chain, anchor.count, anchor.hash, anchor.size)


def require_regular(descriptor: int, path: Path) -> None:
    """Raises `JournalError` where a pipe or device stands in a journal's place."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise JournalError(path, "is no regular file", "move it away")


def require_same_key(path: Path, first: bytes, hasher: Hasher) -> None:
    """Lines of two keys in one chain would fail `verify` with either."""
    link = parse_link(first[:-1])
    if link is not None and link.key_id != hasher.key_id:
        raise JournalError(
            path,
            "was begun with another key, or without one",
            "give the key that it was begun with, or use another session id",
        )


def _repair_tail(
    descriptor: int,
    path: Path,
    session: str,
    position: ChainPosition,
    tail: bytes,
    hasher: Hasher,
    on_finding: FindingCallback,
) -> ChainPosition:
    """What a dying process left behind the last line feed."""
    if not tail:
        return position
    try:
        whole = advance(hasher, session, position, tail)
    except BrokenChainError:
        os.ftruncate(descriptor, position.size)
        message = f"{len(tail)} bytes of a line that was not written to its end were cut off"
        on_finding(make_finding("journal/torn-line", path, message, position.count + 1))
        return position
    os.write(descriptor, b"\n")
    on_finding(
        make_finding("journal/torn-line", path, "a missing line feed was added", whole.count)
    )
    return whole


def altered_error(path: Path, reason: str) -> AlteredError:
    return AlteredError(
        path,
        f"was altered: {reason}",
        "look with `policyguard journal verify --store STORE`; use another session id to go on",
    )
