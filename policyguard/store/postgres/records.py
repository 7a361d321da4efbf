"""Anchors, evidence, and records that can be revoked, in PostgreSQL."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from policyguard.store.errors import DECODE_ERRORS, SessionBusyError, damaged_error
from policyguard.store.postgres.database import Database
from policyguard.store.protocol import (
    REVOKED,
    Anchor,
    JournalNote,
    LoadTimes,
    RecordChanges,
    RevocableRecord,
)

_BATCH_ROWS = 500
_BATCH_PIECES = 32
_PIECE_BYTES = 256 * 1024
"""Of a journal: what one row keeps at most, and how many are read at a time."""
_LOADS = "loads"
_decode_note = msgspec.json.Decoder(JournalNote).decode


class Table:
    """A table of at most `max_rows` rows; None evicts nothing. Its rows are counted beside it."""

    def __init__(self, database: Database, name: str, key: str, max_rows: int | None) -> None:
        self._database, self._name, self._key, self._max_rows = database, name, key, max_rows

    def note_put(self, *, inserted: bool) -> int:
        """Count a row that is new; evict the least recently used, and return how many."""
        if not inserted:
            return 0
        ((rows,),) = self._database.execute(_COUNT, (self._name, 1))
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
            self._database.execute(_COUNT, (self._name, -rows))


_COUNT = (
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
        ((version,),) = self._database.execute(_COUNT, (f"{self._name} version", 1))
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


class PostgresAnchors:
    """See `policyguard.store.protocol.SharedAnchorStore`.

    `openings` are the numbers with which this process has opened its sessions.
    """

    def __init__(
        self, database: Database, max_rows: int | None, openings: Mapping[str, int]
    ) -> None:
        self._database, self._max_rows = database, max_rows
        self._openings = openings
        self._table = Table(database, "anchors", "session", max_rows)

    def get(self, session: str) -> Anchor | None:
        rows = self._database.execute(f"{_ANCHORS} WHERE session = %s", (session,))
        return self._decode(rows[0]) if rows else None

    def put(self, anchor: Anchor) -> None:
        with self._database.transaction():
            ((inserted,),) = self._database.execute(
                "INSERT INTO anchors (session, chain, count, hash, size, at, mac, used) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, nextval('uses')) "
                "ON CONFLICT (session) DO UPDATE SET chain = excluded.chain, "
                "count = excluded.count, hash = excluded.hash, size = excluded.size, "
                "at = excluded.at, mac = excluded.mac, used = excluded.used RETURNING xmax = 0",
                msgspec.structs.astuple(anchor),
            )
            evicted = self._table.note_put(inserted=inserted)
            if evicted:
                self.note_evicted(evicted)

    def note_evicted(self, count: int) -> None:
        """Add to the number of evicted anchors."""
        self._database.execute(_COUNT, ("anchors evicted", count))

    def put_lines(self, anchor: Anchor, start: int, lines: bytes, place: str) -> None:
        session = anchor.session
        with self._database.transaction():
            holds = self._database.execute(
                "SELECT 1 FROM holders WHERE session = %s AND opening = %s FOR SHARE",
                (session, self._openings.get(session)),
            )
            if not holds:
                raise SessionBusyError(
                    self._database.name,
                    f"session {session!r:.80} was opened by another process",
                    "close it there, or use another session id",
                )
            self.put(anchor)
            self.add_lines(session, start, lines, place)

    def add_lines(self, session: str, start: int, lines: bytes, place: str) -> None:
        """Keep bytes of a session's journal without asking for its lock."""
        for at in range(0, len(lines), _PIECE_BYTES):
            piece = lines[at : at + _PIECE_BYTES]
            self._database.execute(  # the same again if a commit's answer was lost
                "INSERT INTO lines (session, start, size, content, place) "
                "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (session, start) DO UPDATE "
                "SET size = excluded.size, content = excluded.content, place = excluded.place",
                (session, start + at, len(piece), zlib.compress(piece, 1), place),
            )

    def lines(self, session: str) -> Iterator[bytes]:
        end = 0
        while True:
            rows = self._database.execute(
                "SELECT start, size, content FROM lines WHERE session = %s AND start >= %s "
                "ORDER BY start LIMIT %s",
                (session, end, _BATCH_PIECES),
            )
            for start, size, content in rows:
                if start != end:
                    return
                yield self.unpack(content, size)
                end += size
            if len(rows) < _BATCH_PIECES:
                return

    def unpack(self, content: bytes, size: int) -> bytes:
        """Return the `size` bytes of a kept piece. Damage is a `StoreError`."""
        try:
            return zlib.decompressobj().decompress(content, size)
        except zlib.error as error:
            raise damaged_error(self._database.name, "a journal", error) from None

    def lines_size(self, session: str, place: str | None = None) -> int:
        ((size,),) = self._database.execute(
            "SELECT coalesce(max(start + size), 0) FROM lines "
            "WHERE session = %s AND place = coalesce(%s, place)",
            (session, place),
        )
        return int(size)

    def last_place(self, session: str) -> str:
        rows = self._database.execute(
            "SELECT place FROM lines WHERE session = %s ORDER BY start DESC LIMIT 1", (session,)
        )
        return str(rows[0][0]) if rows else ""

    def delete(self, session: str) -> None:
        with self._database.transaction():
            gone = self._database.execute(
                "DELETE FROM anchors WHERE session = %s RETURNING session", (session,)
            )
            self._database.execute("DELETE FROM holders WHERE session = %s", (session,))
            self._table.note_deleted(len(gone))

    def all(self) -> Iterator[Anchor]:
        """Yield all anchors, by session, with or without those set meanwhile."""
        last: str | None = None
        while True:
            rows = self._database.execute(
                f'{_ANCHORS} WHERE %s::text IS NULL OR session COLLATE "C" > %s '
                'ORDER BY session COLLATE "C" LIMIT %s',
                (last, last, _BATCH_ROWS),
            )
            yield from map(self._decode, rows)
            if len(rows) < _BATCH_ROWS:
                return
            last = rows[-1][0]

    def count_evicted(self) -> int:
        rows = self._database.execute("SELECT number FROM counters WHERE name = 'anchors evicted'")
        return int(rows[0][0]) if rows else 0

    def add_note(self, note: JournalNote) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO notes (note) VALUES (%s)", (msgspec.json.encode(note),)
            )
            if self._max_rows is not None:
                self._database.execute(
                    "DELETE FROM notes WHERE id <= (SELECT id FROM notes ORDER BY id DESC "
                    "OFFSET %s LIMIT 1)",
                    (self._max_rows,),
                )

    def notes(self) -> Iterator[JournalNote]:
        last = 0
        while True:
            rows = self._database.execute(
                "SELECT id, note FROM notes WHERE id > %s ORDER BY id LIMIT %s", (last, _BATCH_ROWS)
            )
            for id_, note in rows:
                try:
                    yield _decode_note(note)
                except DECODE_ERRORS as error:
                    raise damaged_error(self._database.name, "a note", error) from None
                last = id_
            if len(rows) < _BATCH_ROWS:
                return

    def get_load_times(self) -> LoadTimes | None:
        rows = self._database.execute("SELECT value FROM meta WHERE name = %s", (_LOADS,))
        try:
            return msgspec.json.decode(rows[0][0], type=LoadTimes) if rows else None
        except DECODE_ERRORS as error:
            raise damaged_error(self._database.name, "its last load", error) from None

    def put_load_times(self, times: LoadTimes) -> None:
        put_meta(self._database, _LOADS, msgspec.json.encode(times))

    def _decode(self, row: tuple[object, ...]) -> Anchor:
        return Anchor(**dict(zip(Anchor.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]  # the columns' types


_ANCHORS = "SELECT session, chain, count, hash, size, at, mac FROM anchors"


def put_meta(database: Database, name: str, value: bytes) -> None:
    """Set a value of the store's own."""
    database.execute(
        "INSERT INTO meta (name, value) VALUES (%s, %s) "
        "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


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
        self._delete("scope = %s OR starts_with(scope, %s)", scope, f"{scope}\x1f")

    def _delete(self, where: str, *values: str) -> None:
        with self._database.transaction():
            gone = self._database.execute(
                f"DELETE FROM evidence WHERE {where} RETURNING key",  # noqa: S608 - our own text
                values,
            )
            self._table.note_deleted(len(gone))

    def list(self) -> tuple[tuple[str, str, bytes], ...]:
        rows = self._database.execute(
            'SELECT scope, key, payload FROM evidence ORDER BY scope COLLATE "C", key COLLATE "C"'
        )
        return tuple((row[0], row[1], row[2]) for row in rows)
