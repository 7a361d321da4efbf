"""Digests of rows: they show that another program changed the database.

The digest of a table is the sum of the hashes of its rows, so a change costs the same however large
the table is. Triggers that exist only in our own connections update it in the transaction of the
change: a process that dies leaves no difference, a change by another program does. The rows of
shared budgets are updated by calls: they have a hash each, and their table a digest of their keys.

There is no secret in a digest: an attacker who takes the trouble can compute those of their rows.
Anchors, evidence and leases have none, since each would make the calls that write them slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from policyguard.store.sqlite.commit_count import CountedDatabase
from policyguard.store.sqlite.database import Connection, Migration, SqlValue

_BYTES = 32
_MODULUS = 1 << (8 * _BYTES)

_RECORD_COLUMNS = (
    "id",
    "scope",
    "key",
    "state",
    "updated_at",
    "payload",
    "revoked_by",
    "mac",
    "version",
    "used",
)
_COLUMNS = {
    "constraints": (
        "id",
        "scope",
        "key",
        "state",
        "updated_at",
        "payload",
        "revoked_by",
        "version",
        "used",
    ),
    "purses": ("budget", "key"),  # see `QUOTA_COLUMNS`
    "notes": ("id", "note"),
    "meta": ("name", "value"),
    "grants": _RECORD_COLUMNS,
    "marks": _RECORD_COLUMNS,
}
"""The columns that a digest covers. Those of a later migration need a new digest."""
_FIRST_TABLES = ("constraints", "purses", "notes", "meta")
"""The tables that had a digest first."""
QUOTA_COLUMNS = ("budget", "key", "account", "until")
"""The columns that the hash of a shared budget's row covers."""
_COVERED = {"meta": "name = 'key'"}
"""The rows that a digest covers, if not all."""
_EVENTS = {
    "INSERT": ("", "new."),
    "DELETE": ("old.", ""),
    "UPDATE": ("old.", "new."),
}
"""The rows that a statement removes and adds."""
_TABLE_EVENTS = {"meta": ("INSERT",), "purses": ("INSERT", "DELETE")}
"""The statements that change what a digest covers, if not all."""


def _as_bytes(columns: Iterable[str]) -> str:
    """Return columns as bytes: SQLite can hold text that Python cannot."""
    return ", ".join(f"CAST({column} AS BLOB)" for column in columns)


def _columns(table: str, row: str) -> str:
    return _as_bytes(f"{row}{column}" for column in _COLUMNS[table])


def _select_total(table: str) -> str:
    where = f" WHERE {_COVERED[table]}" if table in _COVERED else ""
    total = f"policyguard_sum({_columns(table, '')})"
    without_rows = f"zeroblob({_BYTES})"
    return f"SELECT ifnull({total}, {without_rows}) FROM {table}{where}"  # noqa: S608 - our names


def add_digest(table: str) -> str:
    """Return the statement of a migration that adds the digest of a table's rows."""
    return f"INSERT INTO meta (name, value) VALUES ('digest {table}', ({_select_total(table)}))"  # noqa: S608


_QUOTA_HASH = f"policyguard_hash({_as_bytes(QUOTA_COLUMNS)})"

DIGESTS: Migration = (
    "ALTER TABLE purses ADD COLUMN digest BLOB",
    f"UPDATE purses SET digest = {_QUOTA_HASH}",  # noqa: S608 - our names
    *map(add_digest, _FIRST_TABLES),
)
"""A migration: the digests of the rows at this time."""


def _triggers() -> Iterator[str]:
    for table in _COLUMNS:
        for event, rows in _EVENTS.items():
            if event not in _TABLE_EVENTS.get(table, _EVENTS):
                continue
            when = f"WHEN new.{_COVERED[table]} " if table in _COVERED else ""
            columns = ", ".join(_columns(table, row) for row in rows if row)
            yield (
                f"CREATE TEMP TRIGGER digest_{table}_{event} AFTER {event} ON main.{table} {when}"  # noqa: S608
                f"BEGIN UPDATE meta SET value = policyguard_{event}(value, {columns}) "
                f"WHERE name = 'digest {table}'; END"
            )


_TRIGGERS = ";".join(("PRAGMA temp_store = MEMORY", "BEGIN", *_triggers(), "COMMIT"))


_IS_EDITED = {
    table: f"SELECT ({_select_total(table)}) IS NOT "  # noqa: S608
    f"(SELECT value FROM meta WHERE name = 'digest {table}')"
    for table in _COLUMNS
}
_HAS_EDITED_QUOTA = f"SELECT EXISTS (SELECT 1 FROM purses WHERE digest IS NOT {_QUOTA_HASH})"  # noqa: S608


class DigestedDatabase(CountedDatabase):
    """A database whose rows have digests."""

    def find_edited(self) -> tuple[str, ...]:
        """Return the tables that another program changed. Raises `StoreError`."""
        with self.transaction(write=False):
            edited = {table for table in _COLUMNS if self.query_int(_IS_EDITED[table])}
            if self.query_int(_HAS_EDITED_QUOTA):
                edited.add("purses")
        return tuple(sorted(edited))

    def _new_connection(self, path: Path) -> Connection:
        connection = super()._new_connection(path)
        for name, function in (("INSERT", _add), ("DELETE", _remove), ("UPDATE", _replace)):
            connection.create_function(f"policyguard_{name}", -1, function, deterministic=True)
        connection.create_function("policyguard_hash", -1, hash_row, deterministic=True)
        connection.create_aggregate("policyguard_sum", -1, _new_sum)
        return connection

    def _prepare(self, connection: Connection) -> None:
        super()._prepare(connection)
        if not self._read_only:
            connection.executescript(_TRIGGERS)


def hash_row(*row: SqlValue) -> bytes:
    """Return the hash of a row's values, of whatever type SQLite keeps them."""
    values = [_bytes(value) for value in row]
    return blake2b(ascii(values).encode(), digest_size=_BYTES).digest()


def _bytes(value: SqlValue) -> bytes | None:
    """Return what SQLite's cast to BLOB returns."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _number(row: tuple[SqlValue, ...]) -> int:
    return int.from_bytes(hash_row(*row))


def _add(digest: SqlValue, *row: SqlValue) -> SqlValue:
    return _shift(digest, _number(row))


def _remove(digest: SqlValue, *row: SqlValue) -> SqlValue:
    return _shift(digest, -_number(row))


def _replace(digest: SqlValue, *rows: SqlValue) -> SqlValue:
    middle = len(rows) // 2
    return _shift(digest, _number(rows[middle:]) - _number(rows[:middle]))


def _shift(digest: SqlValue, difference: int) -> SqlValue:
    if not isinstance(digest, bytes):
        return digest  # another program has changed it: keep that
    return ((int.from_bytes(digest) + difference) % _MODULUS).to_bytes(_BYTES)


class _Sum:
    """SQL's aggregate of rows."""

    def __init__(self) -> None:
        self._number = 0

    def step(self, *row: SqlValue) -> None:
        """Add a row."""
        self._number += _number(row)

    def finalize(self) -> bytes:
        """Return the digest."""
        return (self._number % _MODULUS).to_bytes(_BYTES)


def _new_sum() -> Any:  # typeshed wants parameters that SQLite decides
    return _Sum()
