"""One connection to PostgreSQL, its transactions, and its schema.

While the database is away every call fails at once but for one attempt a second, so that a guard
decides without it instead of waiting; an attempt that hangs goes on in another thread.
"""

from __future__ import annotations

import atexit
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from policyguard.engines.operating_system import after_fork_in_child
from policyguard.model.text import escape_surrogates
from policyguard.store.errors import StoreError
from policyguard.store.postgres.connection import Attempt, Connection, Row
from policyguard.store.postgres.schema import LOCK, MIGRATIONS

_RETRY_AFTER = 1.0
"""Seconds until a database that was away is asked again."""
_DEFAULTS: dict[str, str] = {
    "connect_timeout": "5",
    "application_name": "policyguard",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_TIMEOUTS = (
    "SET statement_timeout = '5s'; SET lock_timeout = '5s'; "
    "SET idle_in_transaction_session_timeout = '10s'; SET synchronous_commit = on"
)


class Database:
    """A connection that is opened when it is needed, and again after it was lost.

    `address` is a connection string of libpq (`postgresql://…`), whose options pass through.
    `name` is what errors show of it, without a password.
    """

    def __init__(self, address: str) -> None:
        try:
            given = conninfo.conninfo_to_dict(address)
        except psycopg.Error:  # whose text quotes the address
            raise StoreError(
                Path("postgresql:…"), "is no address that libpq can read", "see docs/fleet.md"
            ) from None
        self._address = conninfo.make_conninfo("", **{**_DEFAULTS, **given})
        place = f"{given.get('host') or 'localhost'}:{given.get('port') or 5432}"
        self.name = Path(f"postgresql:{place}/{given.get('dbname') or given.get('user') or ''}")
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._attempt: Attempt | None = None
        self._depth = 0
        self._retry_at = 0.0
        self.generation = 0
        """Grows with each connection: what belonged to the one before is gone."""
        _instances.add(self)

    def __del__(self) -> None:
        """Close what its user has left open."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside one step. The outermost block counts. Raises `StoreError`."""
        with self._lock:
            if self._depth:
                yield
                return
            with self._translated(), ExitStack() as stack:
                try:
                    stack.enter_context(self._connect().transaction())
                except psycopg.OperationalError:  # it had gone while it was not used
                    self._drop()
                    stack.enter_context(self._connect().transaction())
                self._depth = 1
                stack.callback(self._leave)
                yield

    def _leave(self) -> None:
        self._depth = 0

    def execute(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a query and return its rows. Raises `StoreError`."""
        with self._lock:
            fresh = self._connection is None
            try:
                return self._run(query, values)
            except _LostConnectionError:
                if self._depth or fresh:
                    raise
                return self._run(query, values)  # the connection had gone while it was not used

    def _run(self, query: str, values: Sequence[object]) -> list[Row]:
        connection = self._connect()
        with self._translated():
            cursor = connection.execute(query, [*map(_escape, values)])
            if cursor.description is None:
                return []
            return [tuple(map(_unescape, row)) for row in cursor.fetchall()]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise `StoreError` for an error of the database; drop a connection that is lost."""
        try:
            yield
        except psycopg.OperationalError as error:
            lost = self._connection is None or self._connection.closed
            if lost:
                self._drop()
                raise _LostConnectionError(
                    self.name, _reason(error), "see whether it runs"
                ) from None
            raise StoreError(self.name, _reason(error), "try again") from None
        except psycopg.Error as error:
            raise StoreError(self.name, _reason(error), "see docs/fleet.md") from None

    def _connect(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._attempt is None:
            if time.monotonic() < self._retry_at:
                raise StoreError(self.name, "is away", "see whether it runs")
            if self.generation:  # calls of a guard wait for this
                self._attempt = Attempt(self._open)
        attempt = self._attempt
        if attempt is not None and attempt.is_pending:
            raise StoreError(self.name, "is away: it does not answer", "see whether it runs")
        self._attempt = None
        try:
            connection = attempt.take() if attempt is not None else self._open()
        except psycopg.Error as error:
            self._retry_at = time.monotonic() + _RETRY_AFTER
            reason = f"cannot be reached: {_reason(error)}"
            raise StoreError(self.name, reason, "see whether it runs, and its address") from None
        self._connection = connection
        self.generation += 1
        return connection

    def describe(self) -> dict[str, str | int]:
        """Return which database it is: host, port, name and user. Raises `StoreError`."""
        with self._lock:
            info = self._connect().info
            return {
                "host": info.host,
                "port": info.port,
                "database": info.dbname,
                "user": info.user,
            }

    def _open(self) -> Connection:
        """Connect, and bring the schema up to date. Raises `psycopg.Error`."""
        connection = Connection.connect(self._address, autocommit=True)
        try:
            connection.execute(_TIMEOUTS)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def listen(self, channel: str, ended: socket.socket) -> Iterator[None]:
        """Yield at each notification, and when listening begins, on a connection of its own.

        It ends when `ended` can be read. Raises `StoreError` if the connection is lost.
        """
        try:
            with (
                psycopg.connect(self._address, autocommit=True) as connection,
                selectors.DefaultSelector() as selector,
            ):
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                yield
                selector.register(connection.fileno(), selectors.EVENT_READ)
                selector.register(ended, selectors.EVENT_READ)
                while all(key.fileobj is not ended for key, _ in selector.select()):
                    for _ in connection.notifies(timeout=0):
                        yield
        except psycopg.Error as error:
            raise StoreError(self.name, _reason(error), "see whether it runs") from None

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._drop()
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                attempt.abandon()

    def forget(self) -> None:
        """Leave the connection to the parent process, after a fork."""
        self._lock = threading.RLock()
        self._depth = 0
        if self._attempt is not None:
            _left_to_parents.append(self._attempt)
            self._attempt = None
        if self._connection is not None:
            _left_to_parents.append(self._connection)
            self._connection = None


class _LostConnectionError(StoreError):
    """The connection has gone."""


def _migrate(connection: Connection) -> None:
    """Bring the schema up to date, one process at a time."""
    if _read_version(connection) == len(MIGRATIONS):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute("CREATE TABLE IF NOT EXISTS policyguard_schema (version int NOT NULL)")
        version = _read_version(connection)
        if version > len(MIGRATIONS):
            raise psycopg.DataError(f"its schema {version} is of a later version of policyguard")
        for migration in MIGRATIONS[version:]:
            connection.execute(migration)
        connection.execute("DELETE FROM policyguard_schema")
        connection.execute("INSERT INTO policyguard_schema VALUES (%s)", (len(MIGRATIONS),))


def _read_version(connection: Connection) -> int:
    known = connection.execute("SELECT to_regclass('policyguard_schema')").fetchone()
    if known is None or known[0] is None:
        return 0
    row = connection.execute("SELECT max(version) FROM policyguard_schema").fetchone()
    return int(row[0] or 0) if row is not None else 0


_ESCAPE = "\x1a"


def _escape(value: object) -> object:
    """Return a value as a column of text can hold it: without NUL, and no two alike."""
    if isinstance(value, str):
        text = escape_surrogates(value)
        return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")
    return value


def _unescape(value: object) -> object:
    """Return a value as it was before `_escape`."""
    if isinstance(value, str):
        return value.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)
    return value


def _reason(error: Exception) -> str:
    """Return the first line of an error; libpq shows no passwords."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_instances: weakref.WeakSet[Database] = weakref.WeakSet()
_left_to_parents: list[object] = []


def _after_fork() -> None:
    for one in [*_instances]:
        one.forget()


def _close_all() -> None:
    for one in [*_instances]:
        one.close()


after_fork_in_child(_after_fork)
atexit.register(_close_all)
