"""A store in one SQLite file, which any number of processes share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from policyguard.engines.operating_system import (
    NO_FILE_LOCKS,
    NO_FILE_LOCKS_REMEDY,
    has_file_locks,
)
from policyguard.store.boot import TimeAnchor, anchor_time, read_time_id
from policyguard.store.errors import DECODE_ERRORS, StoreError, damaged_error
from policyguard.store.paths import resolve_store_path
from policyguard.store.protocol import (
    Anchor,
    Caps,
    JournalNote,
    LoadTimes,
)
from policyguard.store.session_locks import FileLock, LockFile
from policyguard.store.sqlite.commit_count import COUNT_SUFFIX
from policyguard.store.sqlite.records import CONSTRAINTS, GRANTS, MARKS, SqliteRecords, SqliteTable
from policyguard.store.sqlite.row_digest import DigestedDatabase
from policyguard.store.sqlite.schema import APPLICATION_ID, MIGRATIONS

if TYPE_CHECKING:
    from policyguard.store.quota.quotas import SharedQuotas

_KEY_BYTES = 32
_SELECT_KEY = "SELECT value FROM meta WHERE name = 'key'"
_EVICTED = "anchors dropped"
_TIME = "time"
_LOADS = "loads"
_MAX_ENTRIES = 200
"""How many files of a folder are looked at."""
_BATCH_ROWS = 500
"""The rows of one read, so that no process waits for a long one."""


def find_other_store(path: Path) -> Path | None:
    """Return another store in a store's folder, which would share its journals; None without one.

    In a folder of very many files it may not be found. No file is opened: closing it would drop
    the locks that this process has on it, and SQLite of another process would cut its `-shm`.
    """
    try:
        with os.scandir(path.parent) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                name = entry.name.removesuffix(COUNT_SUFFIX)
                if name not in ("", entry.name, path.name) and path.with_name(name).is_file():
                    return path.with_name(name)
    except OSError:
        pass
    return None


class SqliteStore:
    """See `policyguard.store.protocol.Store`. The file, its folder and its locks are private.

    `caps` bound the records; None, for reading, evicts nothing. `timeout` is how long to wait for
    other processes, in seconds. `sync` survives power loss, at about ten times the cost of a write.
    `read_only` needs an existing file and writes nothing. `StoreError` where the system has no
    POSIX file locks (Windows).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        caps: Caps | None,
        timeout: float = 5.0,
        sync: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = resolve_store_path(path)
        if not has_file_locks():
            raise StoreError(self.path, NO_FILE_LOCKS, NO_FILE_LOCKS_REMEDY)
        self._database = database = DigestedDatabase(
            self.path,
            application_id=APPLICATION_ID,
            migrations=MIGRATIONS,
            timeout=timeout,
            sync=sync,
            read_only=read_only,
        )
        self._fingerprint_key: bytes | None = None
        self._lock_file = LockFile(self.path.with_name(f"{self.path.name}.lock"))
        self.anchors = SqliteAnchors(database, caps.anchors if caps else None)
        self.constraints = SqliteRecords(database, caps.constraints if caps else None, CONSTRAINTS)
        self.grants = SqliteRecords(database, caps.grants if caps else None, GRANTS)
        self.marks = SqliteRecords(database, None, MARKS)
        self.evidence = SqliteEvidence(database, caps.evidence if caps else None)
        self._sync, self._read_only = sync, read_only
        self._quotas: SharedQuotas | None = None
        self._quotas_lock = threading.Lock()

    @property
    def quotas(self) -> SharedQuotas:
        """The shared quotas, which few policies have."""
        with self._quotas_lock:
            if self._quotas is None:
                from policyguard.store.quota.quotas import SharedQuotas
                from policyguard.store.quota.sqlite import SqliteQuotaBackend

                backend = SqliteQuotaBackend(
                    self._database,
                    self._lock_file,
                    is_durable=self._sync,
                    read_only=self._read_only,
                )
                self._quotas = SharedQuotas(backend)
            return self._quotas

    @property
    def fingerprint_key(self) -> bytes:
        """The key of fingerprints, created with the store."""
        if self._fingerprint_key is None:
            rows = self._database.execute(_SELECT_KEY)
            if not rows:
                with self._database.transaction():
                    self._database.execute(
                        "INSERT INTO meta (name, value) VALUES ('key', ?) ON CONFLICT DO NOTHING",
                        (os.urandom(_KEY_BYTES),),
                    )
                    rows = self._database.execute(_SELECT_KEY)
            self._fingerprint_key = bytes(rows[0][0])
        return self._fingerprint_key

    def adopt_key(self, key: bytes) -> None:
        """Give a store without a key of fingerprints this one."""
        self._database.execute("INSERT INTO meta (name, value) VALUES ('key', ?)", (key,))
        self._fingerprint_key = None

    def count_lost(self) -> int:
        """Return how many of the last transactions the file lacks; if any, it can only be read."""
        return self._database.count_lost()

    def find_edited(self) -> tuple[str, ...]:
        """Return the tables of which rows were changed by another program."""
        return self._database.find_edited()

    def anchor_time(self, offset: int, elapsed: int) -> int:
        with self._database.transaction():
            rows = self._database.execute("SELECT value FROM meta WHERE name = ?", (_TIME,))
            try:
                known = msgspec.json.decode(rows[0][0], type=TimeAnchor) if rows else None
            except DECODE_ERRORS as error:
                raise damaged_error(self._database.path, "its time", error) from None
            # A random id: without an id of the boot, no guard can know another's time.
            time_id = read_time_id() or os.urandom(8).hex()
            anchor = anchor_time(known, time_id, offset, elapsed)
            self._database.execute(
                "INSERT INTO meta (name, value) VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET value = excluded.value",
                (_TIME, msgspec.json.encode(anchor)),
            )
        return anchor.offset

    def lock_session(self, session: str) -> FileLock:
        return self._lock_file.acquire(session)

    def has_locks(self) -> bool:
        """Whether a guard of any process has a session open, or a part of a shared budget."""
        return self._lock_file.has_locks()

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def close(self) -> None:
        """Return all quota leases and close the file.

        Raises `StoreError` if a lease cannot be saved: others reclaim it when this process ends.
        """
        try:
            if self._quotas is not None:
                self._quotas.close()
        finally:
            self._database.close()


_SELECT_ANCHORS = "SELECT session, chain, count, hash, size, at, mac FROM anchors"

_decode_note = msgspec.json.Decoder(JournalNote).decode


class SqliteAnchors(SqliteTable):
    """See `policyguard.store.protocol.AnchorStore`."""

    def get(self, session: str) -> Anchor | None:
        rows = self._database.execute(f"{_SELECT_ANCHORS} WHERE session = ?", (session,))
        return self._decode(rows[0]) if rows else None

    def put(self, anchor: Anchor) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO anchors (session, chain, count, hash, size, at, mac, used) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM anchors)) "
                "ON CONFLICT DO UPDATE SET chain = excluded.chain, count = excluded.count, "
                "hash = excluded.hash, size = excluded.size, at = excluded.at, "
                "mac = excluded.mac, used = excluded.used",
                msgspec.structs.astuple(anchor),
            )
            evicted = self.evict("anchors", "session")
            if evicted:
                self.note_evicted(evicted)

    def note_evicted(self, count: int) -> None:
        """Add to the number of evicted anchors."""
        self._database.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET value = value + excluded.value",
            (_EVICTED, count),
        )

    def delete(self, session: str) -> None:
        self._database.execute("DELETE FROM anchors WHERE session = ?", (session,))

    def all(self) -> Iterator[Anchor]:
        """Yield all anchors, by session, with or without those set meanwhile."""
        first = ""
        while True:
            rows = self._database.execute(
                f"{_SELECT_ANCHORS} WHERE session >= ? ORDER BY session LIMIT ?",
                (first, _BATCH_ROWS),
            )
            yield from map(self._decode, rows)
            if len(rows) < _BATCH_ROWS:
                return
            first = f"{rows[-1][0]}\0"  # the next greater string

    def count_evicted(self) -> int:
        return self._database.query_int(
            "SELECT ifnull(max(value), 0) FROM meta WHERE name = ?", (_EVICTED,)
        )

    def add_note(self, note: JournalNote) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO notes (note) VALUES (?)", (msgspec.json.encode(note),)
            )
            if self._max_rows is not None:
                self._database.execute(
                    "DELETE FROM notes WHERE id <= (SELECT max(id) FROM notes) - ?",
                    (self._max_rows,),
                )

    def notes(self) -> Iterator[JournalNote]:
        last = 0
        while True:
            rows = self._database.execute(
                "SELECT id, note FROM notes WHERE id > ? ORDER BY id LIMIT ?", (last, _BATCH_ROWS)
            )
            for id_, note in rows:
                try:
                    yield _decode_note(note)
                except DECODE_ERRORS as error:
                    raise damaged_error(self._database.path, "a note", error) from None
                last = id_
            if len(rows) < _BATCH_ROWS:
                return

    def get_load_times(self) -> LoadTimes | None:
        rows = self._database.execute("SELECT value FROM meta WHERE name = ?", (_LOADS,))
        try:
            return msgspec.json.decode(rows[0][0], type=LoadTimes) if rows else None
        except DECODE_ERRORS as error:
            raise damaged_error(self._database.path, "its last load", error) from None

    def put_load_times(self, times: LoadTimes) -> None:
        self._database.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET value = excluded.value",
            (_LOADS, msgspec.json.encode(times)),
        )

    def _decode(self, row: tuple[object, ...]) -> Anchor:
        try:
            return msgspec.convert(dict(zip(Anchor.__struct_fields__, row, strict=True)), Anchor)
        except DECODE_ERRORS as error:
            raise damaged_error(self._database.path, "an anchor", error) from None


class SqliteEvidence(SqliteTable):
    """See `policyguard.store.protocol.EvidenceStore`."""

    def get(self, scope: str, key: str) -> bytes | None:
        rows = self._database.execute(
            "SELECT payload FROM evidence WHERE scope = ? AND key = ?", (scope, key)
        )
        return rows[0][0] if rows else None

    def put(self, scope: str, key: str, payload: bytes) -> None:
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO evidence (scope, key, payload, used) "
                "VALUES (?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM evidence)) "
                "ON CONFLICT DO UPDATE SET payload = excluded.payload, used = excluded.used",
                (scope, key, payload),
            )
            self.evict("evidence", "scope, key")

    def delete(self, scope: str, key: str) -> None:
        self._database.execute("DELETE FROM evidence WHERE scope = ? AND key = ?", (scope, key))

    def delete_scope(self, scope: str) -> None:
        self._database.execute(
            f"DELETE FROM evidence WHERE {_IN_SCOPE}",  # noqa: S608 - our own text
            _scope_bounds(scope),
        )

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        where = "TRUE" if scope is None else _IN_SCOPE
        rows = self._database.execute(
            f"SELECT scope, key, payload FROM evidence WHERE {where} ORDER BY scope, key",  # noqa: S608 - our own text
            () if scope is None else _scope_bounds(scope),
        )
        return tuple((row[0], row[1], row[2]) for row in rows)


_IN_SCOPE = "(scope = ? OR (scope > ? AND scope < ?))"


def _scope_bounds(scope: str) -> tuple[str, str, str]:
    return scope, f"{scope}\x1f", f"{scope}\x20"
