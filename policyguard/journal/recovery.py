"""Check and repair a session's file when it is opened for writing.

From the anchor on, every line must follow the previous one; such lines are adopted (a process died
before it anchored them). A torn last line is cut, or completed if only its line feed is missing.
Without a key someone else may have written such lines, so what is adopted or cut is always noted in
the store, before it is anchored. Anything else has another cause: the file stays unchanged and
accepts no events. Lines before the anchor are left to `verify`, so that opening costs the same
however long the journal is.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from policyguard.journal.anchors.mac import find_forgery
from policyguard.journal.chain import (
    HASH_BYTES,
    BrokenChainError,
    ChainPosition,
    Hasher,
    advance,
    parse_link,
)
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.store.protocol import Anchor, Repaired


def recover(
    descriptor: int,
    path: Path,
    session: str,
    anchor: Anchor | None,
    hasher: Hasher,
    add_note: Callable[[Repaired], None],
    *,
    has_all_anchors: bool = False,
) -> tuple[ChainPosition, Repaired | None]:
    """Return the position of the next line, and what was repaired.

    `add_note` is called before. With `has_all_anchors`, no anchor was evicted or given up. Raises
    `AlteredError`, what `add_note` raises, and `OSError` if the disk fails.
    """
    position = start = _anchored_position(descriptor, path, anchor)
    tail = b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        first = file.readline()
        require_same_key(path, first, hasher)
        if anchor is not None:
            require_own_anchor(path, first, anchor, hasher)
        file.seek(start.size)
        for line in file:
            if not line.endswith(b"\n"):
                tail = line
                break
            try:
                position = advance(hasher, session, position, line[:-1])
            except BrokenChainError as error:
                raise AlteredError(path, f"line {position.count + 1} {error}") from None
    if anchor is None and has_all_anchors:
        require_anchored(path, first, position.count, hasher)
    cut = 0
    if tail:  # a dying process left it unfinished
        try:
            position = advance(hasher, session, position, tail)
        except BrokenChainError:
            cut = len(tail)
    adopted = position.count - start.count
    if not adopted and not cut:
        return position, None
    repaired = Repaired(
        session,
        position.chain,
        start.count + 1,
        adopted,
        cut,
        time.time_ns(),
        is_keyed=bool(hasher.key_id),
    )
    add_note(repaired)
    if cut:
        os.ftruncate(descriptor, position.size)
    elif tail:
        os.write(descriptor, b"\n")
    return position, repaired


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
    if link is not None and link.key_id not in hasher.key_ids:
        raise JournalError(
            path,
            "was begun with another key, or without one",
            "use that key, or another session id",
        )


def require_own_anchor(path: Path, first: bytes, anchor: Anchor, hasher: Hasher) -> None:
    """Raise `AlteredError` for an anchor that the holder of the key did not write."""
    forgery = find_forgery(anchor, hasher, first_key_id(first))
    if forgery:
        raise AlteredError(path, f"has an anchor that was not made with its key: {forgery}")


def require_anchored(path: Path, first: bytes, count: int, hasher: Hasher) -> None:
    """Raise `AlteredError` if a journal of `count` lines had an anchor, which is gone."""
    if count > 1 and first_key_id(first) == hasher.key_id:
        raise AlteredError(path, f"has {count} lines, and its anchor is gone")


def first_key_id(first: bytes) -> str:
    """Return the id of the key in a first line (with line feed); empty without one."""
    link = parse_link(first[:-1])
    return link.key_id if link is not None else ""
