"""SQLite's errors in words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from policyguard.store.sqlite.failures import explain_failure
from policyguard.store.sqlite.log_files import REMOVED_LOG


@pytest.mark.parametrize(("log", "removed"), [(None, True), (b"", True), (b"pages", False)])
def test_a_short_read_means_a_removed_log_only_where_there_is_none(
    tmp_path: Path, log: bytes | None, removed: bool
) -> None:
    path = tmp_path / "store.db"
    if log is not None:
        path.with_name("store.db-wal").write_bytes(log)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHORT_READ
    reason, remedy = explain_failure(error, path)
    assert ((reason, remedy) == REMOVED_LOG) is removed
    if not removed:
        assert reason == "the disk fails (disk I/O error)"


def test_another_failure_is_none_of_a_missing_log(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    reason, _ = explain_failure(error, tmp_path / "store.db")
    assert reason.endswith("(database or disk is full)")
