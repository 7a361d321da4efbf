"""Anchors of journals, their lines and notes, in PostgreSQL."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import msgspec

from policyguard.store.errors import DECODE_ERRORS, SessionBusyError, damaged_error
from policyguard.store.postgres.database import Database
from policyguard.store.postgres.records import ADD_TO_COUNTER, Table
from policyguard.store.protocol import Anchor, JournalNote, LoadTimes

_BATCH_ROWS = 500
_BATCH_PIECES = 32
_PIECE_BYTES = 256 * 1024
"""Of a journal: what one row keeps at most, and how many are read at a time."""
_LOADS = "loads"
_decode_note = msgspec.json.Decoder(JournalNote).decode


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
        self._database.execute(ADD_TO_COUNTER, ("anchors evicted", count))

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
