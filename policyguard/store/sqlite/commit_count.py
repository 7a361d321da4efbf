"""A count of commits, in a database and in a file beside it: together they show what was lost.

A database in WAL mode has its last transactions in its log only. If the log is removed while no
process has the database open, SQLite opens what is left without an error, and spent budgets are
available again. The file is written after each commit and not synced. It holds until the machine
boots again: after a power loss the database may rightly be older.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from policyguard.engines.operating_system import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK
from policyguard.store.boot import read_boot_id
from policyguard.store.errors import StoreError
from policyguard.store.paths import FILE_MODE
from policyguard.store.sqlite.database import Connection, Database

COUNT_SUFFIX = ".commits"
"""The end of the file's name, behind that of the database."""
_READ = "SELECT ifnull(max(value), 0) FROM meta WHERE name = 'commits'"
_HAS_COUNT = "SELECT count(*) FROM sqlite_master WHERE name = 'meta'"
_INCREASE = (
    "INSERT INTO meta (name, value) VALUES ('commits', 1) "
    "ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value"
)
_COUNT_BYTES = 8
_FLAGS = O_CLOEXEC | O_NOFOLLOW


class CountedDatabase(Database):
    """A database with a table `meta`, which refuses to open if it has lost transactions."""

    def count_lost(self) -> int:
        """Return how many of the last transactions the database lacks. Raises `StoreError`."""
        return max(0, self._read_file() - self.query_int(_READ))

    def _commit(self, *, write: bool) -> None:
        if not write:
            super()._commit(write=write)
            return
        ((count,),) = self.execute(_INCREASE)
        super()._commit(write=write)
        self._write_file(int(count))

    def _prepare(self, connection: Connection) -> None:
        if not self._read_only:
            self._require_last_commit(connection)  # before it writes to a new log
        super()._prepare(connection)

    def _require_last_commit(self, connection: Connection) -> None:
        known = self._read_file()  # first: other processes commit meanwhile
        if not known:
            return
        ((has_count,),) = connection.execute(_HAS_COUNT).fetchall()
        count = connection.execute(_READ).fetchone()[0] if has_count else 0
        lost = known - int(count)
        if lost > 0:
            raise StoreError(
                self.path,
                f"its last transactions are missing ({lost}): its log (`-wal`) was removed, or "
                "the file was replaced by an older one",
                "end programs that have it open in order, which may save the log; put both back; "
                f"or delete `{self._file.name}` to go on without what was lost",
            )

    @property
    def _file(self) -> Path:
        return self.path.with_name(f"{self.path.name}{COUNT_SUFFIX}")

    def _read_file(self) -> int:
        """Return the count in the file; 0 if there is none of this boot."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | O_NONBLOCK | _FLAGS)
        except OSError:
            return 0
        try:
            content = os.read(descriptor, 64)
        except OSError:
            return 0
        finally:
            os.close(descriptor)
        count, boot = content[:_COUNT_BYTES], content[_COUNT_BYTES:]
        return int.from_bytes(count) if boot and boot == _boot_digest() else 0

    def _write_file(self, count: int) -> None:
        """Write the count. A failure only means that a loss may go unnoticed."""
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | _FLAGS, FILE_MODE)
        except OSError:
            return
        try:
            os.pwrite(descriptor, count.to_bytes(_COUNT_BYTES) + _boot_digest(), 0)
        except OSError:
            return
        finally:
            os.close(descriptor)


@cache
def _boot_digest() -> bytes:
    """Return an id of this boot; empty if the system has none."""
    boot_id = read_boot_id()
    return hashlib.sha256(boot_id.encode()).digest() if boot_id else b""
