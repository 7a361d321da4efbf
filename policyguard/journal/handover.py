"""A session that another host has gone on with: its journal is completed from the store.

Where several hosts share a store, it has the lines of each journal up to its anchor. A host without
them takes them from there before it goes on. Lines of its own that were never anchored are put
aside: the session went on without them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from policyguard.engines.operating_system import O_CLOEXEC, O_NOFOLLOW
from policyguard.journal.chain import HASH_BYTES
from policyguard.journal.errors import JournalError, MissingLinesError
from policyguard.journal.findings import VerifyFinding, format_time, make_finding
from policyguard.store.paths import FILE_MODE
from policyguard.store.protocol import Anchor, SharedAnchorStore

PART, ASIDE = ".part", ".aside"


def lacks_lines(path: Path, anchor: Anchor) -> bool:
    """Whether a session's file does not have the anchored line where the anchor says."""
    try:
        descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    except OSError:
        return True
    try:
        end = os.pread(descriptor, HASH_BYTES, max(0, anchor.size - HASH_BYTES))
    except OSError:  # a folder, or a pipe: writing says so
        return False
    finally:
        os.close(descriptor)
    return end != b'"hash":"%b"}\n' % anchor.hash.encode()


def take_over(path: Path, anchor: Anchor, anchors: SharedAnchorStore) -> Iterator[VerifyFinding]:
    """Write a session's file as far as its anchor goes, and say what was done.

    Raises `MissingLinesError` if the store does not have these; then nothing is changed.
    `JournalError` if the file cannot be written.
    """
    part = path.with_name(path.name + PART)
    try:
        with suppress(FileNotFoundError):
            part.unlink()  # of a process that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_CLOEXEC | O_NOFOLLOW
        with os.fdopen(os.open(part, flags, FILE_MODE), "wb") as file:
            try:
                _copy(anchors.lines(anchor.session), file, anchor.size)
                file.flush()
                os.fsync(file.fileno())
                if lacks_lines(part, anchor):
                    raise MissingLinesError(path, anchor.count)
            except BaseException:
                part.unlink()
                raise
        own = _count_own_lines(path, part)
        place = anchors.last_place(anchor.session)
        if own:
            aside = path.with_name(f"{path.name}.{anchor.count}{ASIDE}")
            path.rename(aside)
            message = f"{own} lines were never anchored, and another process went on without them: "
            yield make_finding("journal/set-aside", path, message + f"they are in {aside}")
        part.replace(path)
    except OSError as error:
        reason = f"cannot be completed from the store: {error.strerror or error}"
        raise JournalError(path, reason, "check the folder and the disk") from None
    when = "at an unknown time" if anchor.at is None else f"on {format_time(anchor.at)}"
    where = place or "another host"
    message = f"goes on after {anchor.count} lines of {where}, the last written {when}"
    yield make_finding("journal/handed-over", path, message)


def place_of(folder: Path) -> str:
    """Return where journals are, for people: the host and the folder."""
    from socket import gethostname  # slow to import, and hosts with a file need none

    return f"{gethostname()}:{folder.resolve()}"


def read_lines(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the complete lines of a journal that comes in pieces, up to `size` bytes."""
    rest = b""
    for piece in pieces:
        piece = piece[:size]
        size -= len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if size <= 0:
            return


def _copy(pieces: Iterable[bytes], file: BinaryIO, size: int) -> None:
    for piece in pieces:
        size -= file.write(piece[:size])
        if not size:
            return


def count_common(lines: Iterable[bytes], other: Iterable[bytes]) -> int:
    """Return how many lines two journals begin with that are the same."""
    pairs = zip(lines, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _count_own_lines(path: Path, other: Path) -> int:
    """Return how many lines a file has from where it differs from another; 0 without a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    with os.fdopen(descriptor, "rb") as lines, other.open("rb") as others:
        common = count_common(lines, others)
        lines.seek(0)
        return sum(1 for _ in lines) - common
