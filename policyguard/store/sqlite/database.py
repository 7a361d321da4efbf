"""A SQLite file shared by processes.

Surprises of SQLite (each has a test in `tests/store/`):

- An open connection must not cross a fork: SQLite tracks its file locks in memory, and a child
  takes the inherited locks for its own. Connections are closed before a fork and reopened, on both
  sides, when next used.
- A transaction that begins as a reader and then writes can fail with *busy* at once, whatever the
  timeout. Write transactions use `BEGIN IMMEDIATE`.
- `PRAGMA journal_mode = WAL` ignores the timeout too if several processes create the file at once.
  It is retried.
- `executescript` commits an open transaction. Migrations run statement by statement.
- Text with a lone surrogate raises an error that is not SQLite's.
- A signal handler that raises (Ctrl-C) does so after a statement, even after *begin*.
- Readers do not wait for a writer, so a successful read does not show that a lock is gone.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from policyguard.model.text import escape_surrogates
from policyguard.store import fork_safety
from policyguard.store.errors import DECODE_ERRORS, StoreError, damaged_error
from policyguard.store.paths import ensure_private_file, require_regular_file
from policyguard.store.sqlite.failures import (
    FAILURES,
    cannot_open,
    explain_failure,
    is_busy,
    needs_files,
)
from policyguard.store.sqlite.log_files import LOST_LOG, LogFiles, require_writable

SqlValue = str | int | bytes | None
Migration = tuple[str, ...]
"""The statements from one version of a schema to the next."""

_RETRY_SECONDS = 0.01
"""The interval between attempts where SQLite itself does not wait."""
_BRIEF_WAIT = 1 / 250
"""The part of the timeout to wait while the database is known to be locked: 20 ms of 5 s."""
_MAX_WAL_BYTES = 4 * 1024 * 1024
"""The size of the write-ahead log after a checkpoint."""


class Connection(sqlite3.Connection):
    """A connection that closes when it is collected; SQLite's own would warn (Python 3.13)."""

    def __del__(self) -> None:
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


class Database:
    """A database file, opened on first use, and again after a fork.

    `application_id` marks the file as ours; `migrations` lead from an empty file to the current
    schema. `timeout` is how long to wait for other processes, in seconds. After one such wait in
    vain, each use waits only briefly, until a write transaction begins: callers hold locks of their
    own meanwhile. With `sync` a transaction survives power loss, otherwise only the death of the
    process. A `read_only` database must exist, and is not migrated; where SQLite cannot read it
    without writing beside it, a copy is read, which is as old as the first use.
    """

    def __init__(
        self,
        path: Path,
        *,
        application_id: int,
        migrations: Sequence[Migration],
        timeout: float,
        sync: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._application_id = application_id
        self._migrations = migrations
        self._timeout = timeout
        self._is_locked = False
        self._sync = sync
        self._read_only = read_only
        self._connection: Connection | None = None
        self._file_stat: os.stat_result | None = None
        self._log_files: LogFiles | None = None
        self._in_transaction = False
        self._forked_inside = False
        self._lock = threading.RLock()
        fork_safety.databases.add(self)

    def execute(self, statement: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows. Raises `StoreError`."""
        with self._lock:
            try:
                connection = self._connect()
                try:
                    return connection.execute(statement, values).fetchall()
                except UnicodeEncodeError:
                    escaped = [escape_surrogates(v) if isinstance(v, str) else v for v in values]
                    return connection.execute(statement, escaped).fetchall()
            except FAILURES as error:
                failure = self._translate(error)
                if is_busy(error) and not self._is_locked:
                    self._set_locked(True)
                raise failure from None

    def query_int(self, statement: str, values: Sequence[SqlValue] = ()) -> int:
        """Return the integer that a statement selects. Raises `StoreError`."""
        rows = self.execute(statement, values)
        try:
            ((value,),) = rows
            return int(value)
        except DECODE_ERRORS as error:
            raise damaged_error(self.path, f"a number in it ({statement})", error) from None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """Run everything inside in one transaction; nested ones join it."""
        with self._lock:
            if self._in_transaction:
                yield
                return
            try:
                self._in_transaction = True
                self.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                if write and self._is_locked:
                    self._set_locked(False)
                yield
                self._commit(write=write)
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._in_transaction = False

    def close(self) -> None:
        """Close the file; the next use opens whatever file then has its path."""
        with self._lock:
            self._disconnect()
            self._file_stat = None

    @property
    def _wait(self) -> float:
        """How long to wait for other processes now, in seconds."""
        return self._timeout * _BRIEF_WAIT if self._is_locked else self._timeout

    def _set_locked(self, is_locked: bool) -> None:
        """Note whether another process locks the database."""
        self._is_locked = is_locked
        if self._connection is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {round(self._wait * 1000)}")

    def _disconnect(self) -> None:
        """Close the connection; the next use reopens the file."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is None:
                return
            is_saved = True
            with self._translated_errors():
                try:
                    if self._log_files is not None and not self._log_files.are_intact():
                        is_saved = self._log_files.save(connection.execute)
                finally:
                    connection.close()
            if not is_saved:
                raise StoreError(self.path, *LOST_LOG)

    def _commit(self, *, write: bool) -> None:
        if self._forked_inside:
            raise self._fork_error()
        self.execute("COMMIT")

    def _roll_back(self) -> None:
        """Roll back, unless SQLite has done so by itself, as on a full disk."""
        connection = self._connection
        if connection is not None and connection.in_transaction and not self._forked_inside:
            with self._translated_errors():
                connection.rollback()

    def _connect(self) -> Connection:
        if self._forked_inside:
            raise self._fork_error()
        connection = self._connection
        if connection is None:
            return self._open()
        if not connection.in_transaction:
            self._check_file()
            if self._log_files is not None and not self._log_files.are_intact():
                self._disconnect()
                return self._open()
        elif not self._in_transaction:
            self._roll_back()  # both the transaction and its rollback were interrupted
        return connection

    def _open(self) -> Connection:
        if self._file_stat is not None:
            self._check_file()
        elif self._read_only:
            require_regular_file(self.path)
        else:
            ensure_private_file(self.path)
            require_writable(self.path)
        try:
            connection = self._open_prepared(self.path)
        except sqlite3.OperationalError as error:
            if not (self._read_only and needs_files(error) and self._exists()):
                raise
            from policyguard.store.sqlite.snapshot import copied_database  # few need it

            with copied_database(self.path, self._timeout) as copy:
                connection = self._open_prepared(copy)
        try:
            self._file_stat = self.path.stat()
            self._log_files = None if self._read_only else LogFiles(self.path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _open_prepared(self, path: Path) -> Connection:
        connection = self._new_connection(path)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _exists(self) -> bool:
        try:
            return self.path.exists()
        except OSError:  # its folder is not ours to search
            return True

    def _check_file(self) -> None:
        """Check that the file is the one that was opened: SQLite would continue without it."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise self._replaced_error(f"is gone ({error.strerror})") from None
        if self._file_stat is not None and not os.path.samestat(status, self._file_stat):
            raise self._replaced_error("is another file now")

    def _replaced_error(self, reason: str) -> StoreError:
        self._log_files = None  # of a database that is gone
        return StoreError(
            self.path,
            f"{reason}: it was removed or replaced while it was in use",
            "put it back with the files beside it, or restart the program",
        )

    def _new_connection(self, path: Path) -> Connection:
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'ro' if self._read_only else 'rw'}",
            uri=True,
            timeout=self._wait,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )

    def _prepare(self, connection: Connection) -> None:
        if not self._read_only:
            self._enable_wal(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
        connection.execute("BEGIN")  # another process may create the tables between two reads
        try:
            version = self._read_version(connection)
        finally:
            connection.rollback()
        if version == len(self._migrations):
            return
        if self._read_only:
            raise StoreError(
                self.path, "has an older schema", "open it once for writing, to migrate it"
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again: another process may have migrated it meanwhile.
            for migration in self._migrations[self._read_version(connection) :]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def _enable_wal(self, connection: Connection) -> None:
        until = time.monotonic() + self._wait
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > until:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _read_version(self, connection: Connection) -> int:
        """Return the version of the schema. Raises `StoreError` if we cannot use it."""
        ((application_id,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if application_id != self._application_id and (tables or self._read_only):
            raise StoreError(self.path, "is not a policyguard store", "use another file")
        if version > len(self._migrations):
            raise StoreError(
                self.path,
                f"was written by a newer policyguard (schema {version}, this version "
                f"supports {len(self._migrations)})",
                "update policyguard, or use another store",
            )
        return int(version)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate SQLite's errors to `StoreError`."""
        try:
            yield
        except FAILURES as error:
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> StoreError:
        if is_busy(error):
            reason = f"has been locked by another process for {self._timeout:g} s"
            if self._is_locked:
                reason = "is still locked by another process"
            return StoreError(self.path, reason, "end that program, or wait")
        if cannot_open(error) and not self._exists():
            return StoreError(
                self.path, "no store at this path", "pass the path of one as `--store`"
            )
        return StoreError(self.path, *explain_failure(error, self.path))

    def _fork_error(self) -> StoreError:
        return StoreError(
            self.path,
            "this process was forked in the middle of a transaction",
            "fork outside transactions",
        )

    def before_fork(self) -> None:
        """Keep other threads out, and close the connection."""
        self._lock.acquire()
        if not self._in_transaction:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Admit other threads."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Replace the lock, which a thread that does not exist here may hold."""
        self._lock = threading.RLock()
        if self._in_transaction:
            self._forked_inside = True
            # Never closed: that would drop this process's locks on the same file.
            _inherited_connections.append(self._connection)


_inherited_connections: list[Connection | None] = []
