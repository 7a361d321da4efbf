"""Journals that have been kept long enough go, and their anchors with them."""

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
    """Remove journals that are too old or too many, the oldest first; return them.

    Too old is what was last written `before` a time (nanoseconds since 1970 in UTC; None: nothing
    is), too many are more than `most`. One that is being written stays. The anchor goes first: a
    process that dies in between leaves a file without an anchor, not an anchor without a file,
    which would speak of one that was taken away. Raises `JournalError`, `StoreError`.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(SUFFIX) and is_journal_name(Path(entry.name))
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _removal_error(folder, error) from None
    surplus = len(found) - max_journals
    gone = []
    for place, (written, name) in enumerate(found):
        old = before is not None and written < before
        if not old and place >= surplus:
            break
        if _remove(folder / name, anchors):
            gone.append(folder / name)
    return gone


def _remove(path: Path, anchors: AnchorStore) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _removal_error(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            session = decode_session(file.readline())
        # A file that says it is another session's has no say over that one's anchor.
        if session is not None and file_name(session) == path.name:
            anchors.delete(session)
        path.unlink()
    except BlockingIOError:
        return False
    except OSError as error:
        raise _removal_error(path, error) from None
    finally:
        os.close(descriptor)
    return True


def _removal_error(path: Path, error: OSError) -> JournalError:
    return JournalError(
        path, f"cannot be removed: {error.strerror}", "see that the folder is yours to write"
    )
