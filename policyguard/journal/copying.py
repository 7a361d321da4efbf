"""Journals for a store that is copied: the files of this host, and what the source has of others.

The folder of a store's journals lies beside its file, or is named after its database. So guards
look for the journals of a copied store elsewhere.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from policyguard.engines.operating_system import O_CLOEXEC, O_NOFOLLOW
from policyguard.journal.errors import JournalError, MissingLinesError
from policyguard.journal.folder import file_name, is_journal_name
from policyguard.journal.handover import ASIDE, PART, lacks_lines, place_of, take_over
from policyguard.store.copying import JournalPiece
from policyguard.store.paths import FILE_MODE, ensure_private_folder, find_journal_folder
from policyguard.store.protocol import SharedAnchorStore, Store

_PIECE_BYTES = 1 << 20


class CopiedJournals(msgspec.Struct, frozen=True):
    """What was done: files copied, files `written` from the source's lines, and where they are.

    Of `missing` sessions neither this host nor the source has all lines. `folder` is None where
    both stores use the same, or have none.
    """

    copied: int = 0
    written: int = 0
    missing: int = 0
    folder: Path | None = None


def copy_journals(source: Store, target: Store) -> CopiedJournals:
    """Copy the journals of a store that is about to be copied. It may be done again.

    Raises `JournalError` where the target's folder has another journal of the same name.
    """
    begin, end = find_journal_folder(source), find_journal_folder(target)
    if begin is None or end is None or begin.resolve() == end.resolve():
        return CopiedJournals()
    ensure_private_folder(end)
    copied = 0
    if begin.is_dir():
        for file in sorted(begin.iterdir()):
            if is_journal_name(file) or file.suffix == ASIDE:
                _copy_file(file, end / file.name)
                copied += 1
    written = missing = 0
    shared = source.anchors if isinstance(source.anchors, SharedAnchorStore) else None
    if shared is not None and isinstance(target.anchors, SharedAnchorStore):  # which takes them
        return CopiedJournals(copied, folder=end)
    for anchor in source.anchors.all():
        path = end / file_name(anchor.session)
        if not lacks_lines(path, anchor):
            continue
        if shared is not None:
            try:
                for _ in take_over(path, anchor, shared):
                    pass
                written += 1
                continue
            except MissingLinesError:
                pass
        missing += 1
    return CopiedJournals(copied, written, missing, end)


def read_journals(source: Store, target: Store) -> Iterator[JournalPiece]:
    """Yield the anchored lines of copied journals for a target that keeps them, from one without.

    So any host may go on with their sessions.
    """
    folder = find_journal_folder(target)
    if isinstance(source.anchors, SharedAnchorStore) or folder is None:
        return
    if not isinstance(target.anchors, SharedAnchorStore):
        return
    place = place_of(folder)
    for anchor in source.anchors.all():
        path = folder / file_name(anchor.session)
        if lacks_lines(path, anchor):
            continue
        with path.open("rb") as file:
            for start in range(0, anchor.size, _PIECE_BYTES):
                content = file.read(min(_PIECE_BYTES, anchor.size - start))
                yield JournalPiece(anchor.session, start, content, place)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file as a whole; one that is there already must be the same."""
    if target.exists():
        if filecmp.cmp(source, target, shallow=False):
            return
        raise JournalError(target, "is another journal than that of the source", "move it away")
    part = target.with_name(target.name + PART)
    part.unlink(missing_ok=True)  # of a process that was killed
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_CLOEXEC | O_NOFOLLOW
        with (
            os.fdopen(os.open(source, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW), "rb") as data,
            os.fdopen(os.open(part, flags, FILE_MODE), "wb") as file,
        ):
            shutil.copyfileobj(data, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(target)
    except OSError as error:
        reason = f"cannot be copied: {error.strerror or error}"
        raise JournalError(source, reason, "check the folder and the disk") from None
