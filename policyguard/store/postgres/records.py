"""Evidence, and records that can be revoked, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.store.postgres.database import Database
from policyguard.store.protocol import REVOKED, RecordChanges, RevocableRecord


class Table:
    """A table of at most `max_rows` rows; None evicts nothing. Its rows are counted beside it."""

    def __init__(self, database: Database, name: str, key: str, max_rows: int | None) -> None:
        self._database, self._name, self._key, self._max_rows = database, name, key, max_rows

    def note_put(self, *, inserted: bool) -> int:
        """Count a row that is new; evict the least recently used, and return how many."""
        if not inserted:
            return 0
        ((rows,),) = self._database.execute(ADD_TO_COUNTER, (self._name, 1))
        if self._max_rows is None or rows <= self._max_rows:
            return 0
        surplus = int(rows) - self._max_rows
        self._database.execute(
            f"DELETE FROM {self._name} WHERE ({self._key}) IN "  # noqa: S608 - our own names
            f"(SELECT {self._key} FROM {self._name} ORDER BY used LIMIT %s)",
            (surplus,),
        )
        self.note_deleted(surplus)
        return surplus

    def note_deleted(self, rows: int) -> None:
        """Count rows that were deleted."""
        if rows:
            self._database.execute(ADD_TO_COUNTER, (self._name, -rows))


ADD_TO_COUNTER = (
    "INSERT INTO counters (name, number) VALUES (%s, %s) ON CONFLICT (name) "
    "DO UPDATE SET number = counters.number + excluded.number RETURNING number"
)


class PostgresRecords:
    """See `policyguard.store.protocol.RevocableStore`.

    A version is given under a lock that is held until the commit, so that a reader of a later one
    has seen all before it.
    """

    def __init__(
        self, database: Database, max_rows: int | None, name: str, notify: Callable[[], None]
    ) -> None:
        self._database = database
        self._name = name
        self._notify = notify
        self._table = Table(database, name, "id", max_rows)
        self._columns = RevocableRecord.__struct_fields__
        names = ", ".join(self._columns)
        self._select = f"SELECT {names} FROM {name}"  # noqa: S608 - our own names
        updates = ", ".join(
            f"{one} = excluded.{one}" for one in (*self._columns[1:], "version", "used")
        )
        places = ", ".join(["%s"] * len(self._columns))
        self._upsert = (
            f"INSERT INTO {name} ({names}, version, used) "  # noqa: S608 - our own names
            f"VALUES ({places}, %s, nextval('uses')) "
            f"ON CONFLICT (id) DO UPDATE SET {updates} RETURNING xmax = 0"
        )

    def put(self, record: RevocableRecord) -> bool:
        with self._database.transaction():
            version = self._next_version()
            existing = self.get(record.id)
            if existing is not None and existing.state == REVOKED:
                return False
            self._write(record, version)
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
        return next(iter(self._read("WHERE id = %s", id)), None)

    def list(self) -> tuple[RevocableRecord, ...]:
        return self._read('ORDER BY id COLLATE "C"')

    def revoke(self, id: str, *, by: str, at: int) -> RevocableRecord | None:  # noqa: A002 - as above
        with self._database.transaction():
            if self.get(id) is None:
                return None
            version = self._next_version()
            self._database.execute(
                f"UPDATE {self._name} SET state = %s, revoked_by = %s, updated_at = %s, "  # noqa: S608
                "mac = '', version = %s WHERE id = %s",
                (REVOKED, by, at, version, id),
            )
            return self.get(id)

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        with self._database.transaction():
            if self.get(id) is None:
                return
            version = self._next_version()
            gone = self._database.execute(
                f"DELETE FROM {self._name} WHERE id = %s RETURNING id",  # noqa: S608 - our own name
                (id,),
            )
            if gone:
                self._table.note_deleted(len(gone))
                self._note_removal(version)

    def version(self) -> int:
        return self._read_counter("version")

    def advance(self, version: int) -> None:
        self._database.execute(
            "INSERT INTO counters (name, number) VALUES (%s, %s) ON CONFLICT (name) "
            "DO UPDATE SET number = greatest(counters.number, excluded.number)",
            (f"{self._name} version", version),
        )

    def changes(self, since: int) -> RecordChanges:
        with self._database.transaction():
            version = self.version()
            if since == version:
                return RecordChanges(version, (), is_complete=False)
            if since < self._read_counter("floor") or since > version or since <= 0:
                return RecordChanges(version, self.list(), is_complete=True)
            records = self._read(
                'WHERE version > %s AND version <= %s ORDER BY id COLLATE "C"', since, version
            )
            return RecordChanges(version, records, is_complete=False)

    def _write(self, record: RevocableRecord, version: int) -> None:
        values = [getattr(record, name) for name in self._columns]
        ((inserted,),) = self._database.execute(self._upsert, (*values, version))
        if self._table.note_put(inserted=inserted):
            self._note_removal(version)

    def _read(self, where: str, *values: object) -> tuple[RevocableRecord, ...]:
        rows = self._database.execute(f"{self._select} {where}", values)
        return tuple(RevocableRecord(**dict(zip(self._columns, row, strict=True))) for row in rows)

    def _next_version(self) -> int:
        self._notify()  # at the commit
        ((version,),) = self._database.execute(ADD_TO_COUNTER, (f"{self._name} version", 1))
        return int(version)

    def _note_removal(self, version: int) -> None:
        self._database.execute(
            "INSERT INTO counters (name, number) VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET number = excluded.number",
            (f"{self._name} floor", version),
        )

    def _read_counter(self, kind: str) -> int:
        rows = self._database.execute(
            "SELECT number FROM counters WHERE name = %s", (f"{self._name} {kind}",)
        )
        return int(rows[0][0]) if rows else 0


_IN_SCOPE = "(scope = %s OR starts_with(scope, %s))"


class PostgresEvidence:
    """See `policyguard.store.protocol.EvidenceStore`."""

    def __init__(self, database: Database, max_rows: int | None) -> None:
        self._database = database
        self._table = Table(database, "evidence", "scope, key", max_rows)

    def get(self, scope: str, key: str) -> bytes | None:
        rows = self._database.execute(
            "SELECT payload FROM evidence WHERE scope = %s AND key = %s", (scope, key)
        )
        return rows[0][0] if rows else None

    def put(self, scope: str, key: str, payload: bytes) -> None:
        with self._database.transaction():
            ((inserted,),) = self._database.execute(
                "INSERT INTO evidence (scope, key, payload, used) "
                "VALUES (%s, %s, %s, nextval('uses')) ON CONFLICT (scope, key) "
                "DO UPDATE SET payload = excluded.payload, used = excluded.used "
                "RETURNING xmax = 0",
                (scope, key, payload),
            )
            self._table.note_put(inserted=inserted)

    def delete(self, scope: str, key: str) -> None:
        self._delete("scope = %s AND key = %s", scope, key)

    def delete_scope(self, scope: str) -> None:
        self._delete(_IN_SCOPE, scope, f"{scope}\x1f")

    def _delete(self, where: str, *values: str) -> None:
        with self._database.transaction():
            gone = self._database.execute(
                f"DELETE FROM evidence WHERE {where} RETURNING key",  # noqa: S608 - our own text
                values,
            )
            self._table.note_deleted(len(gone))

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        where = "TRUE" if scope is None else _IN_SCOPE
        rows = self._database.execute(
            f"SELECT scope, key, payload FROM evidence WHERE {where} "  # noqa: S608 - our own text
            'ORDER BY scope COLLATE "C", key COLLATE "C"',
            () if scope is None else (scope, f"{scope}\x1f"),
        )
        return tuple((row[0], row[1], row[2]) for row in rows)
