"""A store in one SQLite file: it outlives the process, and any number of processes share it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from policyguard.store.errors import DECODE_ERRORS, damaged_error
from policyguard.store.paths import resolve_store_path
from policyguard.store.protocol import REVOKED, Anchor, Caps, ConstraintChanges, ConstraintRecord
from policyguard.store.quota.quotas import SharedQuotas
from policyguard.store.quota.sqlite import SqliteQuotaBackend
from policyguard.store.session_locks import FileLock, LockFile
from policyguard.store.sqlite.database import Database, SqlValue
from policyguard.store.sqlite.schema import APPLICATION_ID, MIGRATIONS

_KEY_BYTES = 32
_EVICTED = "anchors dropped"
_BATCH_ROWS = 500
"""Rows that are read in one step, so that nobody waits for a reader of many."""


class SqliteStore:
    """See `policyguard.store.protocol.Store`. The file, its folder and its locks are the user's.

    `caps` bound what is kept; None for whoever only looks (nothing is evicted). `patience`:
    seconds to wait for other processes. `sync`: survive a power loss too, at about ten times the
    cost of a write. `read_only`: the file must be there, and nothing is written.
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
        self._database = Database(
            self.path,
            application_id=APPLICATION_ID,
            migrations=MIGRATIONS,
            timeout=timeout,
            sync=sync,
            read_only=read_only,
        )
        self._fingerprint_key: bytes | None = None
        self._lock_file = LockFile(self.path.with_name(f"{self.path.name}.lock"))
        self.anchors = SqliteAnchors(self._database, caps.anchors if caps else None)
        self.constraints = SqliteConstraints(self._database, caps.constraints if caps else None)
        self.evidence = SqliteEvidence(self._database, caps.evidence if caps else None)
        self.quotas = SharedQuotas(
            SqliteQuotaBackend(self._database, self._lock_file, is_durable=sync)
        )

    @property
    def fingerprint_key(self) -> bytes:
        """32 random bytes, made with the store."""
        if self._fingerprint_key is None:
            with self._database.transaction():
                self._database.execute(
                    "INSERT INTO meta (name, value) VALUES ('key', ?) ON CONFLICT DO NOTHING",
                    (os.urandom(_KEY_BYTES),),
                )
                ((key,),) = self._database.execute("SELECT value FROM meta WHERE name = 'key'")
            self._fingerprint_key = bytes(key)
        return self._fingerprint_key

    def lock_session(self, session: str, *, shared: bool = False) -> FileLock:
        """Take a session."""
        return self._lock_file.acquire(session, shared=shared)

    def transaction(self) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._database.transaction()

    def close(self) -> None:
        """Close the file, and give back what is on lease.

        Raises `StoreError` where that cannot be written: it is taken back when this process ends.
        """
        try:
            self.quotas.close()
        finally:
            self._database.close()


class SqliteAnchors:
    """See `policyguard.store.protocol.Anchors`."""

    def __init__(self, database: Database, max_rows: int | None) -> None:
        self._database = database
        self._max_rows = max_rows

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        rows = self._database.execute(
            "SELECT session, chain, count, hash, size FROM anchors WHERE session = ?", (session,)
        )
        return self._anchor(rows[0]) if rows else None

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO anchors (session, chain, count, hash, size, used) "
                "VALUES (?, ?, ?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM anchors)) "
                "ON CONFLICT DO UPDATE SET chain = excluded.chain, count = excluded.count, "
                "hash = excluded.hash, size = excluded.size, used = excluded.used",
                (anchor.session, anchor.chain, anchor.count, anchor.hash, anchor.size),
            )
            dropped = _evict(self._database, "anchors", "session", self._max_rows)
            if dropped:
                self._database.execute(
                    "INSERT INTO meta (name, value) VALUES (?, ?) "
                    "ON CONFLICT DO UPDATE SET value = value + excluded.value",
                    (_EVICTED, dropped),
                )

    def delete(self, session: str) -> None:
        """Forget the session's anchor."""
        self._database.execute("DELETE FROM anchors WHERE session = ?", (session,))

    def all(self) -> Iterator[Anchor]:
        """All anchors, by session; those set meanwhile may be among them or not."""
        first = ""
        while True:
            rows = self._database.execute(
                "SELECT session, chain, count, hash, size FROM anchors "
                "WHERE session >= ? ORDER BY session LIMIT ?",
                (first, _BATCH_ROWS),
            )
            for row in rows:
                yield self._anchor(row)
            if len(rows) < _BATCH_ROWS:
                return
            first = f"{rows[-1][0]}\0"  # the least text that is greater

    def count_evicted(self) -> int:
        """How many went because there were too many."""
        return self._database.query_int(
            "SELECT ifnull(max(value), 0) FROM meta WHERE name = ?", (_EVICTED,)
        )

    def _anchor(self, row: tuple[object, ...]) -> Anchor:
        try:
            return msgspec.convert(dict(zip(Anchor.__struct_fields__, row, strict=True)), Anchor)
        except DECODE_ERRORS as error:
            raise damaged_error(self._database.path, "an anchor", error) from None


_SELECT_CONSTRAINTS = (
    "SELECT id, scope, key, state, updated_at, payload, revoked_by FROM constraints"
)


class SqliteConstraints:
    """See `policyguard.store.protocol.Constraints`."""

    def __init__(self, database: Database, max_rows: int | None) -> None:
        self._database = database
        self._max_rows = max_rows

    def put(self, record: ConstraintRecord, *, revive: bool = False) -> bool:
        """Write a constraint, unless it has been revoked."""
        with self._database.transaction():
            known = None if revive else self.get(record.id)
            if known is not None and known.state == REVOKED:
                return False
            version = self._next_version()
            self._database.execute(
                "INSERT INTO constraints (id, scope, key, state, updated_at, payload, revoked_by, "
                "version, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
                "(SELECT ifnull(max(used), 0) + 1 FROM constraints)) "
                "ON CONFLICT DO UPDATE SET scope = excluded.scope, key = excluded.key, "
                "state = excluded.state, updated_at = excluded.updated_at, "
                "payload = excluded.payload, revoked_by = excluded.revoked_by, "
                "version = excluded.version, used = excluded.used",
                (
                    record.id,
                    record.scope,
                    record.key,
                    record.state,
                    record.updated_at,
                    record.payload,
                    record.revoked_by,
                    version,
                ),
            )
            if _evict(self._database, "constraints", "id", self._max_rows):
                self._note_removal(version)
        return True

    def get(self, id: str) -> ConstraintRecord | None:  # noqa: A002 - the protocol's name
        """The constraint of this id."""
        return next(iter(self._read("WHERE id = ?", id)), None)

    def find(self, scope: str, key: str) -> tuple[ConstraintRecord, ...]:
        """The constraints under this scope and key."""
        return self._read("WHERE scope = ? AND key = ? ORDER BY id", scope, key)

    def list(
        self, scope: str | None = None, state: str | None = None
    ) -> tuple[ConstraintRecord, ...]:
        """All constraints, or those of a scope or state."""
        given = {"scope": scope, "state": state}
        asked = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in asked)
        return self._read(f"{'WHERE ' if where else ''}{where} ORDER BY id", *asked.values())

    def revoke(self, id: str, *, by: str, at: int) -> ConstraintRecord | None:  # noqa: A002 - as above
        """Take a constraint back."""
        with self._database.transaction():
            if self.get(id) is None:
                return None
            self._database.execute(
                "UPDATE constraints SET state = ?, revoked_by = ?, updated_at = ?, version = ? "
                "WHERE id = ?",
                (REVOKED, by, at, self._next_version(), id),
            )
            return self.get(id)

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used."""
        with self._database.transaction():
            for id_ in ids:
                self._database.execute(
                    "UPDATE constraints SET used = (SELECT max(used) + 1 FROM constraints) "
                    "WHERE id = ?",
                    (id_,),
                )

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether."""
        with self._database.transaction():
            if self._database.execute("DELETE FROM constraints WHERE id = ? RETURNING id", (id,)):
                self._note_removal(self._next_version())

    def version(self) -> int:
        """Grows with every change."""
        return self._read_meta("version")

    def changes(self, since: int) -> ConstraintChanges:
        """What happened after version `since`."""
        with self._database.transaction(write=False):
            version = self.version()
            if since == version:
                return ConstraintChanges(version, (), is_complete=False)
            # A version that is not ours yet is another store's: the file was replaced.
            if since < self._read_meta("floor") or since > version or since <= 0:
                return ConstraintChanges(version, self.list(), is_complete=True)
            return ConstraintChanges(
                version, self._read("WHERE version > ? ORDER BY id", since), is_complete=False
            )

    def _read(self, where: str, *values: SqlValue) -> tuple[ConstraintRecord, ...]:
        return tuple(
            ConstraintRecord(
                id=row[0],
                scope=row[1],
                key=row[2],
                state=row[3],
                updated_at=row[4],
                payload=row[5],
                revoked_by=row[6],
            )
            for row in self._database.execute(f"{_SELECT_CONSTRAINTS} {where}", values)
        )

    def _next_version(self) -> int:
        """The new version."""
        self._database.execute("UPDATE meta SET value = value + 1 WHERE name = 'version'")
        return self.version()

    def _note_removal(self, version: int) -> None:
        self._database.execute("UPDATE meta SET value = ? WHERE name = 'floor'", (version,))

    def _read_meta(self, name: str) -> int:
        return self._database.query_int("SELECT value FROM meta WHERE name = ?", (name,))


class SqliteEvidence:
    """See `policyguard.store.protocol.Evidence`."""

    def __init__(self, database: Database, max_rows: int | None) -> None:
        self._database = database
        self._max_rows = max_rows

    def get(self, scope: str, key: str) -> bytes | None:
        """What is remembered under this scope and key."""
        rows = self._database.execute(
            "SELECT payload FROM evidence WHERE scope = ? AND key = ?", (scope, key)
        )
        return rows[0][0] if rows else None

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Remember under this scope and key."""
        with self._database.transaction():
            self._database.execute(
                "INSERT INTO evidence (scope, key, payload, used) "
                "VALUES (?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM evidence)) "
                "ON CONFLICT DO UPDATE SET payload = excluded.payload, used = excluded.used",
                (scope, key, payload),
            )
            _evict(self._database, "evidence", "scope, key", self._max_rows)

    def delete(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key, or under the whole scope."""
        if key is None:
            self._database.execute("DELETE FROM evidence WHERE scope = ?", (scope,))
        else:
            self._database.execute("DELETE FROM evidence WHERE scope = ? AND key = ?", (scope, key))

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each."""
        where, values = ("", ()) if scope is None else ("WHERE scope = ?", (scope,))
        rows = self._database.execute(
            f"SELECT scope, key, payload FROM evidence {where} ORDER BY scope, key",  # noqa: S608 - `where` is one of two texts above
            values,
        )
        return tuple((row[0], row[1], row[2]) for row in rows)


def _evict(database: Database, table: str, key: str, max_rows: int | None) -> int:
    """Remove the least recently used rows beyond the cap; how many there were."""
    if max_rows is None:
        return 0
    number = database.query_int("SELECT number FROM counts WHERE name = ?", (table,))
    if number <= max_rows:
        return 0
    database.execute(
        f"DELETE FROM {table} WHERE ({key}) IN "  # noqa: S608 - both names are from this module
        f"(SELECT {key} FROM {table} ORDER BY used LIMIT ?)",
        (number - max_rows,),
    )
    return number - max_rows
