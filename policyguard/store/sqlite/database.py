"""SQLite: the only module that imports `sqlite3`. A file that lasts, shared by processes.

What surprised us (each has a test in `tests/store/`):

- An open connection must not cross a fork: SQLite keeps its books on file locks in the process's
  memory, and a child that inherits them takes the parent's locks for its own. Connections are
  closed before a fork and opened again, on both sides, when they are next used.
- A transaction that begins as a reader and then writes can fail with *busy* at once, whatever
  the timeout. Writing transactions begin as such (`BEGIN IMMEDIATE`).
- `PRAGMA journal_mode = WAL` ignores the timeout too where several processes make a new file at
  once. It is repeated.
- `executescript` commits what was begun before it. Migrations run statement by statement.
- Text with a lone surrogate raises an error that is none of SQLite's.
- A signal's handler that raises (Ctrl-C) does so when a statement is done: after *begin*, too.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from policyguard.model.text import escape_surrogates
from policyguard.store import fork_safety
from policyguard.store.errors import DECODE_ERRORS, RESTORE_HINT, StoreError, damaged_error
from policyguard.store.paths import ensure_private_file, require_regular_file

SqlValue = str | int | bytes | None
Migration = tuple[str, ...]
"""Statements that bring a database from one version of its schema to the next."""

_PRIMARY_CODE = 0xFF
"""The part of SQLite's extended error codes that holds the primary one."""
_RETRY_SECONDS = 0.01
"""Seconds between two tries where SQLite itself does not wait."""
_MAX_WAL_BYTES = 4 * 1024 * 1024
"""What the write-ahead log is cut back to after it has been copied into the file."""

_FAILURES = (sqlite3.Error, UnicodeError, OverflowError)
_OUT_OF_ROOM = ("the disk is full", "make room")
_NO_ACCESS = ("cannot be opened", "see that it and its folder are yours to read and write")
_DAMAGED = ("is damaged, or no database", RESTORE_HINT)
_REASONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: _OUT_OF_ROOM,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _NO_ACCESS,
    sqlite3.SQLITE_PERM: _NO_ACCESS,
    sqlite3.SQLITE_AUTH: _NO_ACCESS,
    sqlite3.SQLITE_READONLY: ("is read-only", "make it and its folder writable, or name another"),
    sqlite3.SQLITE_IOERR: ("the disk fails", "look for room, quotas and errors on that disk"),
}


class Database:
    """One file with tables; opened when it is first used, and again after a fork.

    `application` is a number that marks the file as ours, `migrations` lead from an empty file to
    the schema that this version knows. `patience` is how long to wait for other processes, in
    seconds. With `sync` each transaction survives a power loss, without it only the death of the
    process. A `read_only` database must be there, and is not migrated.
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
        self._sync = sync
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._file_stat: os.stat_result | None = None
        self._in_transaction = False
        self._forked_inside = False
        self._lock = threading.RLock()
        fork_safety.databases.add(self)

    def execute(self, statement: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement; its rows. Raises `StoreError`."""
        with self._lock:
            try:
                connection = self._connect()
                try:
                    return connection.execute(statement, values).fetchall()
                except UnicodeEncodeError:
                    fit = [
                        escape_surrogates(one) if isinstance(one, str) else one for one in values
                    ]
                    return connection.execute(statement, fit).fetchall()
            except _FAILURES as error:
                raise self._translate(error) from None

    def query_int(self, statement: str, values: Sequence[SqlValue] = ()) -> int:
        """The whole number that a statement gives. Raises `StoreError`."""
        rows = self.execute(statement, values)
        try:
            ((value,),) = rows
            return int(value)
        except DECODE_ERRORS as error:
            raise damaged_error(self.path, f"a number of it ({statement})", error) from None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """All statements inside are one step; an exception undoes them. Nested ones join in."""
        with self._lock:
            if self._in_transaction:
                yield
                return
            try:
                self._in_transaction = True
                self.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield
                self._commit()
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._in_transaction = False

    def close(self) -> None:
        """Close the file; the next use opens whatever then stands in its place."""
        with self._lock:
            self._disconnect()
            self._file_stat = None

    def _disconnect(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with self._translated_errors():
                    connection.close()

    def _commit(self) -> None:
        if self._forked_inside:
            raise self._fork_error()
        self.execute("COMMIT")

    def _roll_back(self) -> None:
        """SQLite has rolled back by itself where the disk is full; then there is nothing to do."""
        connection = self._connection
        if connection is not None and connection.in_transaction and not self._forked_inside:
            with self._translated_errors():
                connection.rollback()

    def _connect(self) -> sqlite3.Connection:
        if self._forked_inside:
            raise self._fork_error()
        connection = self._connection
        if connection is None:
            return self._open()
        if not connection.in_transaction:
            self._check_file()
        elif not self._in_transaction:
            self._roll_back()  # what was interrupted, and the undoing of it too
        return connection

    def _open(self) -> sqlite3.Connection:
        if self._file_stat is not None:
            self._check_file()
        elif self._read_only:
            require_regular_file(self.path)
        else:
            ensure_private_file(self.path)
        connection = self._new_connection()
        try:
            self._prepare(connection)
            self._file_stat = self.path.stat()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _check_file(self) -> None:
        """See that the file is still the one that was opened: SQLite goes on without it."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._replaced_error(f"is gone ({error.strerror})") from None
        if self._file_stat is not None and not os.path.samestat(found, self._file_stat):
            raise self._replaced_error("is another file now")

    def _replaced_error(self, what: str) -> StoreError:
        return StoreError(
            self.path,
            f"{what}: it was removed or replaced while it was in use",
            "put it back with the files beside it, or start the program again",
        )

    def _new_connection(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rw"
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._read_only:
            self._enable_wal(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
        connection.execute("BEGIN")  # another process may make the tables between two looks
        try:
            version = self._read_version(connection)
        finally:
            connection.rollback()
        if version == len(self._migrations):
            return
        if self._read_only:
            raise StoreError(
                self.path, "is of an older version", "use it once with this version, to migrate it"
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked again: another process may have migrated it while we waited.
            for migration in self._migrations[self._read_version(connection) :]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def _enable_wal(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _read_version(self, connection: sqlite3.Connection) -> int:
        """The version of the schema. Raises `StoreError` where it is not one of ours to use."""
        ((mark,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if mark != self._application_id and (tables or self._read_only):
            raise StoreError(self.path, "is no store of policyguard", "name another file")
        if version > len(self._migrations):
            raise StoreError(
                self.path,
                f"was written by a newer policyguard (schema {version}, this one knows "
                f"{len(self._migrations)})",
                "update policyguard, or name another store",
            )
        return int(version)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """SQLite's errors in our own words."""
        try:
            yield
        except _FAILURES as error:
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if isinstance(error, UnicodeDecodeError):  # of SQLite's own words about a broken schema
            code = sqlite3.SQLITE_CORRUPT
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                self.path,
                f"has been locked by another process for {self._timeout:g} s",
                "end the program that holds it, or wait",
            )
        if code == sqlite3.SQLITE_CANTOPEN and not self.path.exists():
            return StoreError(self.path, "is not there", "name a store that exists")
        reason, remedy = _REASONS.get(code, ("cannot be used", "see the words of SQLite"))
        return StoreError(self.path, f"{reason} ({error})", remedy)

    def _fork_error(self) -> StoreError:
        return StoreError(
            self.path,
            "this process was forked in the middle of a transaction",
            "fork outside transactions",
        )

    def before_fork(self) -> None:
        """No thread is inside, and nothing is open, while the process is forked."""
        self._lock.acquire()
        if not self._in_transaction:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """The lock may be held by threads that do not exist here."""
        self._lock = threading.RLock()
        if self._in_transaction:
            self._forked_inside = True
            # Never closed: that would drop what locks this process takes on the same file.
            _inherited_connections.append(self._connection)


_inherited_connections: list[sqlite3.Connection | None] = []
