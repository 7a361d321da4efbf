"""The log of a database in WAL mode and its index: whether they are still those in use.

SQLite continues with a log that was removed, and what it writes then is lost once the connection is
closed while another process has the database open.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from policyguard.store.errors import StoreError
from policyguard.store.paths import is_writable

LOST_LOG = (
    "its log (`-wal`) was replaced while it was in use: the last writes are lost",
    "see what the journals have: `policyguard journal verify`",
)
REMOVED_LOG = (
    "its log (`-wal`) was removed while another process has it open",
    "let that process make a call, or end it in order: it saves the log then. Do not kill it",
)
READ_ONLY = ("is read-only", "make it and its folder writable, or use another")
"""Reasons and remedies of a `StoreError`."""


def require_writable(path: Path) -> None:
    """Raise `StoreError` unless a database and its files may be written, as far as they exist.

    SQLite would make those that are missing as read-only as the others.
    """
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        # Another process may make the file between two of these.
        if not is_writable(file) and file.exists() and not is_writable(file):
            raise StoreError(file, *READ_ONLY)


def is_log_empty(path: Path) -> bool:
    """Whether the database at this path has no log, or one without content."""
    log = _stat(path.with_name(f"{path.name}-wal"))
    return log is None or not log.st_size


class LogFiles:
    """The files beside a database, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._index = path.with_name(f"{path.name}-shm")
        self._log_stat, self._index_stat = _stat(self._log), _stat(self._index)

    def are_intact(self) -> bool:
        """Whether both are the same files still."""
        return _is_same(self._log_stat, _stat(self._log)) and _is_same(
            self._index_stat, _stat(self._index)
        )

    def save(self, execute: Callable[[str], Any]) -> bool:
        """Move what a removed log holds into the database, while a connection still has it.

        `execute` is that connection's. Return False if it is lost, since others may have written
        another log meanwhile.
        """
        if _is_same(self._log_stat, _stat(self._log)):
            return True  # only the index is gone: it is made again from the log
        log = _stat(self._log)
        if log is not None and log.st_size > 0:
            # With the same index, another process has saved the log, and the file is its new one.
            return _is_same(self._index_stat, _stat(self._index))
        ((is_busy, _, _),) = execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return not is_busy


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _is_same(known: os.stat_result | None, found: os.stat_result | None) -> bool:
    """Whether a file is the known one. What was not known to exist is not missed."""
    return known is None or (found is not None and os.path.samestat(known, found))
