"""Deletion of expired journals and their anchors."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from policyguard.journal.chain_position import decode_session
from policyguard.journal.errors import JournalError
from policyguard.journal.file_names import SUFFIX, file_name, is_journal_name
from policyguard.store.protocol import AnchorStore


def prune(
    folder: Path, anchors: AnchorStore, *, before: int | None, max_journals: int
) -> list[Path]:
    """Delete the oldest journals and return their paths.

    Delete those last written `before` a time (nanoseconds since 1970, UTC), and those beyond
    `max_journals`, but none that is being written. The anchor is deleted first: a process that dies
    in between leaves a file without an anchor, not an anchor without a file, which would look like
    theft. Raises `JournalError`, `StoreError`.
    """
    try:
        with os.scandir(folder) as entries:
            journals = sorted(
                (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(SUFFIX) and is_journal_name(Path(entry.name))
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _deletion_error(folder, error) from None
    surplus = len(journals) - max_journals
    deleted = []
    for index, (written_at, name) in enumerate(journals):
        expired = before is not None and written_at < before
        if not expired and index >= surplus:
            break
        if _delete(folder / name, anchors):
            deleted.append(folder / name)
    return deleted


def _delete(path: Path, anchors: AnchorStore) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _deletion_error(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            session = decode_session(file.readline())
        # A file that claims to be another session's must not delete that session's anchor.
        if session is not None and file_name(session) == path.name:
            anchors.delete(session)
        path.unlink()
    except BlockingIOError:
        return False
    except OSError as error:
        raise _deletion_error(path, error) from None
    finally:
        os.close(descriptor)
    return True


def _deletion_error(path: Path, error: OSError) -> JournalError:
    return JournalError(
        path, f"cannot be deleted: {error.strerror}", "check that you can write to the folder"
    )
