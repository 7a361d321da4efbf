"""SQLite's errors, in words: what is wrong, and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from policyguard.store.errors import RESTORE_HINT
from policyguard.store.sqlite.log_files import READ_ONLY, REMOVED_LOG, is_log_empty

FAILURES = (sqlite3.Error, UnicodeError, OverflowError)
"""What `sqlite3` raises if a statement fails."""
_PRIMARY_CODE = 0xFF
"""Masks the primary code of an extended error code."""
_NO_ACCESS = ("cannot be opened", "check that you can read and write it and its folder")
_DAMAGED = ("is damaged, or not a database", RESTORE_HINT)
_REASONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("the disk is full", "make room"),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), _DAMAGED),
    **dict.fromkeys(
        (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH), _NO_ACCESS
    ),
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: ("the disk fails", "check that disk for room, quotas and errors"),
}


def explain_failure(error: Exception, path: Path) -> tuple[str, str]:
    """Return the reason and the remedy of a failure of the database at this path."""
    # The index counts what the log does not have.
    is_short = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
    if is_short and is_log_empty(path):
        return REMOVED_LOG
    code = _primary_code(error)
    if isinstance(error, UnicodeDecodeError):  # in SQLite's message about a damaged schema
        code = sqlite3.SQLITE_CORRUPT
    reason, remedy = _REASONS.get(code, ("cannot be used", "see SQLite's message"))
    return f"{reason} ({error})", remedy


def cannot_open(error: Exception) -> bool:
    """Whether SQLite could not open the file."""
    return _primary_code(error) == sqlite3.SQLITE_CANTOPEN


def needs_files(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite lacks files beside the database that it cannot make."""
    return _primary_code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def is_busy(error: Exception) -> bool:
    """Whether another process locks the database."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
