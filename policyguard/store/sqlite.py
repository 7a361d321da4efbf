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

from policyguard.store import forks
from policyguard.store.errors import REPLACE, UNREADABLE, StoreError, damaged
from policyguard.store.place import private_file, regular_file
from policyguard.store.text import well_formed

Value = str | int | bytes | None
Migration = tuple[str, ...]
"""Statements that bring a database from one version of its schema to the next."""

_PRIMARY = 0xFF
"""The part of SQLite's extended error codes that holds the primary one."""
_PAUSE = 0.01
"""Seconds between two tries where SQLite itself does not wait."""
_WAL_BYTES = 4 * 1024 * 1024
"""What the write-ahead log is cut back to after it has been copied into the file."""

_FAILURES = (sqlite3.Error, UnicodeError, OverflowError)
_OUT_OF_ROOM = ("the disk is full", "make room")
_NO_ACCESS = ("cannot be opened", "see that it and its folder are yours to read and write")
_DAMAGED = ("is damaged, or no database", REPLACE)
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
        application: int,
        migrations: Sequence[Migration],
        patience: float,
        sync: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._application = application
        self._migrations = migrations
        self._patience = patience
        self._sync = sync
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None
        self._inside = False
        self._lost = False
        self._lock = threading.RLock()
        forks.databases.add(self)

    def run(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement; its rows. Raises `StoreError`."""
        with self._lock:
            try:
                connection = self._connected()
                try:
                    return connection.execute(statement, values).fetchall()
                except UnicodeEncodeError:
                    fit = [well_formed(one) if isinstance(one, str) else one for one in values]
                    return connection.execute(statement, fit).fetchall()
            except _FAILURES as error:
                raise self._explained(error) from None

    def number(self, statement: str, values: Sequence[Value] = ()) -> int:
        """The whole number that a statement gives. Raises `StoreError`."""
        rows = self.run(statement, values)
        try:
            ((value,),) = rows
            return int(value)
        except UNREADABLE as error:
            raise damaged(self.path, f"a number of it ({statement})", error) from None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """All statements inside are one step; an exception undoes them. Nested ones join in."""
        with self._lock:
            if self._inside:
                yield
                return
            try:
                self._inside = True
                self.run("BEGIN IMMEDIATE" if write else "BEGIN")
                yield
                self._commit()
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._inside = False

    def close(self) -> None:
        """Close the file; the next use opens whatever then stands in its place."""
        with self._lock:
            self._disconnect()
            self._file = None

    def _disconnect(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with self._told():
                    connection.close()

    def _commit(self) -> None:
        if self._lost:
            raise self._forked()
        self.run("COMMIT")

    def _roll_back(self) -> None:
        """SQLite has rolled back by itself where the disk is full; then there is nothing to do."""
        connection = self._connection
        if connection is not None and connection.in_transaction and not self._lost:
            with self._told():
                connection.rollback()

    def _connected(self) -> sqlite3.Connection:
        if self._lost:
            raise self._forked()
        connection = self._connection
        if connection is None:
            return self._opened()
        if not connection.in_transaction:
            self._see()
        elif not self._inside:
            self._roll_back()  # what was interrupted, and the undoing of it too
        return connection

    def _opened(self) -> sqlite3.Connection:
        if self._file is not None:
            self._see()
        elif self._read_only:
            regular_file(self.path)
        else:
            private_file(self.path)
        connection = self._connect()
        try:
            self._prepare(connection)
            self._file = self.path.stat()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _see(self) -> None:
        """See that the file is still the one that was opened: SQLite goes on without it."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._gone(f"is gone ({error.strerror})") from None
        if self._file is not None and not os.path.samestat(found, self._file):
            raise self._gone("is another file now")

    def _gone(self, what: str) -> StoreError:
        return StoreError(
            self.path,
            f"{what}: it was removed or replaced while it was in use",
            "put it back with the files beside it, or start the program again",
        )

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rw"
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._read_only:
            self._write_ahead(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute("BEGIN")  # another process may make the tables between two looks
        try:
            version = self._version(connection)
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
            for migration in self._migrations[self._version(connection) :]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application}")
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self._patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def _version(self, connection: sqlite3.Connection) -> int:
        """The version of the schema. Raises `StoreError` where it is not one of ours to use."""
        ((mark,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if mark != self._application and (tables or self._read_only):
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
    def _told(self) -> Iterator[None]:
        """SQLite's errors in our own words."""
        try:
            yield
        except _FAILURES as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if isinstance(error, UnicodeDecodeError):  # of SQLite's own words about a broken schema
            code = sqlite3.SQLITE_CORRUPT
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                self.path,
                f"has been locked by another process for {self._patience:g} s",
                "end the program that holds it, or wait",
            )
        if code == sqlite3.SQLITE_CANTOPEN and not self.path.exists():
            return StoreError(self.path, "is not there", "name a store that exists")
        reason, remedy = _REASONS.get(code, ("cannot be used", "see the words of SQLite"))
        return StoreError(self.path, f"{reason} ({error})", remedy)

    def _forked(self) -> StoreError:
        return StoreError(
            self.path,
            "this process was forked in the middle of a transaction",
            "fork outside transactions",
        )

    def before_fork(self) -> None:
        """No thread is inside, and nothing is open, while the process is forked."""
        self._lock.acquire()
        if not self._inside:
            self._disconnect()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """The lock may be held by threads that do not exist here."""
        self._lock = threading.RLock()
        if self._inside:
            self._lost = True
            # Never closed: that would drop what locks this process takes on the same file.
            _inherited.append(self._connection)


_inherited: list[sqlite3.Connection | None] = []
