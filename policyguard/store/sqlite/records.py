"""Tables of a store in SQLite, and those of records that can be revoked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from policyguard.store.protocol import REVOKED, RecordChanges, RevocableRecord
from policyguard.store.sqlite.database import Database, SqlValue


class SqliteTable:
    """A table of at most `max_rows` rows; None evicts nothing."""

    def __init__(self, database: Database, max_rows: int | None) -> None:
        self._database = database
        self._max_rows = max_rows

    def evict(self, table: str, key: str) -> int:
        """Delete the least recently used rows beyond the cap; return their number."""
        if self._max_rows is None:
            return 0
        rows = self._database.query_int("SELECT number FROM counts WHERE name = ?", (table,))
        surplus = rows - self._max_rows
        if surplus <= 0:
            return 0
        self._database.execute(
            f"DELETE FROM {table} WHERE ({key}) IN "  # noqa: S608 - both names are from our modules
            f"(SELECT {key} FROM {table} ORDER BY used LIMIT ?)",
            (surplus,),
        )
        return surplus


class RecordTable(msgspec.Struct, frozen=True):
    """The names of a table, its columns, and its two counters in `meta`.

    `version` grows with each change of the table; `floor` is the last that removed a row.
    """

    name: str
    columns: tuple[str, ...]
    version: str
    floor: str


_COLUMNS = ("id", "scope", "key", "state", "updated_at", "payload", "revoked_by")
CONSTRAINTS = RecordTable("constraints", _COLUMNS, "version", "floor")
GRANTS = RecordTable("grants", (*_COLUMNS, "mac"), "grants version", "grants floor")
MARKS = RecordTable("marks", (*_COLUMNS, "mac"), "marks version", "marks floor")


class SqliteRecords(SqliteTable):
    """See `policyguard.store.protocol.RevocableStore`."""

    def __init__(self, database: Database, max_rows: int | None, table: RecordTable) -> None:
        super().__init__(database, max_rows)
        self._table = table
        names = ", ".join(table.columns)
        own = ("version", "used")
        updates = ", ".join(f"{name} = excluded.{name}" for name in (*table.columns[1:], *own))
        self._select = f"SELECT {names} FROM {table.name}"  # noqa: S608 - our names
        self._upsert = (
            f"INSERT INTO {table.name} ({names}, version, used) "  # noqa: S608 - our names
            f"VALUES ({'?, ' * len(table.columns)}?, "
            f"(SELECT ifnull(max(used), 0) + 1 FROM {table.name})) "
            f"ON CONFLICT DO UPDATE SET {updates}"
        )
        unsigned = ", mac = ''" if "mac" in table.columns else ""
        self._revoke = (
            f"UPDATE {table.name} SET state = ?, revoked_by = ?, updated_at = ?, "  # noqa: S608
            f"version = ?{unsigned} WHERE id = ?"
        )
        self._delete = f"DELETE FROM {table.name} WHERE id = ? RETURNING id"  # noqa: S608

    def put(self, record: RevocableRecord) -> bool:
        with self._database.transaction():
            existing = self.get(record.id)
            if existing is not None and existing.state == REVOKED:
                return False
            self._write(record, self._next_version())
        return True

    def update(
        self,
        id: str,  # noqa: A002 - the protocol's name
        make: Callable[[RevocableRecord | None, int], RevocableRecord],
    ) -> None:
        with self._database.transaction():
            version = self._next_version()
            self._write(make(self.get(id), version), version)

    def get(self, id: str) -> RevocableRecord | None:  # noqa: A002 - the protocol's name
        return next(iter(self._read("WHERE id = ?", id)), None)

    def list(self) -> tuple[RevocableRecord, ...]:
        return self._read("ORDER BY id")

    def revoke(self, id: str, *, by: str, at: int) -> RevocableRecord | None:  # noqa: A002 - as above
        with self._database.transaction():
            if self.get(id) is None:
                return None
            self._database.execute(self._revoke, (REVOKED, by, at, self._next_version(), id))
            return self.get(id)

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        with self._database.transaction():
            if self._database.execute(self._delete, (id,)):
                self._note_removal(self._next_version())

    def version(self) -> int:
        return self._read_meta(self._table.version)

    def advance(self, version: int) -> None:
        self._database.execute(
            "UPDATE meta SET value = max(value, ?) WHERE name = ?", (version, self._table.version)
        )

    def changes(self, since: int) -> RecordChanges:
        with self._database.transaction(write=False):
            version = self.version()
            if since == version:
                return RecordChanges(version, (), is_complete=False)
            # A later version is another store's: the file was replaced.
            if since < self._read_meta(self._table.floor) or since > version or since <= 0:
                return RecordChanges(version, self.list(), is_complete=True)
            records = self._read("WHERE version > ? ORDER BY id", since)
            return RecordChanges(version, records, is_complete=False)

    def _write(self, record: RevocableRecord, version: int) -> None:
        values = [getattr(record, name) for name in self._table.columns]
        self._database.execute(self._upsert, (*values, version))
        if self.evict(self._table.name, "id"):
            self._note_removal(version)

    def _read(self, where: str, *values: SqlValue) -> tuple[RevocableRecord, ...]:
        rows = self._database.execute(f"{self._select} {where}", values)
        columns = self._table.columns
        return tuple(RevocableRecord(**dict(zip(columns, row, strict=True))) for row in rows)

    def _next_version(self) -> int:
        self._database.execute(
            "UPDATE meta SET value = value + 1 WHERE name = ?", (self._table.version,)
        )
        return self.version()

    def _note_removal(self, version: int) -> None:
        self._database.execute(
            "UPDATE meta SET value = ? WHERE name = ?", (version, self._table.floor)
        )

    def _read_meta(self, name: str) -> int:
        return self._database.query_int("SELECT value FROM meta WHERE name = ?", (name,))
