"""The folder of journals: the names of its files, and the deletion of expired ones."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path

from policyguard.journal.chain import decode_session
from policyguard.journal.errors import JournalError
from policyguard.store.protocol import AnchorStore

SUFFIX = ".jsonl"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_PREFIX_CHARACTERS = 40
"""The length of the readable prefix."""
_JOURNAL_NAME = re.compile(r"(?:.*-)?[0-9a-f]{32}\.jsonl")


def file_name(session: str) -> str:
    """Return a name unique to the session, and never a path, whatever its id is.

    It is a readable prefix and a hash of the whole id, so that similar ids have different files.
    """
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    prefix = _UNSAFE.sub("_", session)[:_PREFIX_CHARACTERS].strip("._-")
    return f"{prefix}-{digest}{SUFFIX}" if prefix else f"{digest}{SUFFIX}"


def is_journal_name(file: Path) -> bool:
    """Return whether a file has the name of a journal."""
    return _JOURNAL_NAME.fullmatch(file.name) is not None


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
