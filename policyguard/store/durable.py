"""A store in one SQLite file: it outlives the process, and any number of processes share it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from policyguard.store.durable_ledger import SqliteLedger
from policyguard.store.errors import UNREADABLE, damaged
from policyguard.store.leases import Leases, SessionLease
from policyguard.store.place import named_store
from policyguard.store.protocol import REVOKED, Anchor, Caps, Changes, Constraint
from policyguard.store.purses import SharedPurses
from policyguard.store.sqlite import Database, Value
from policyguard.store.tables import APPLICATION, MIGRATIONS

_KEY_BYTES = 32
_DROPPED = "anchors dropped"
_BATCH = 500
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
        patience: float = 5.0,
        sync: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = named_store(path)
        self._database = Database(
            self.path,
            application=APPLICATION,
            migrations=MIGRATIONS,
            patience=patience,
            sync=sync,
            read_only=read_only,
        )
        self._key: bytes | None = None
        self._leases = Leases(self.path.with_name(f"{self.path.name}.lock"))
        self.anchors = SqliteAnchors(self._database, caps.anchors if caps else None)
        self.constraints = SqliteConstraints(self._database, caps.constraints if caps else None)
        self.evidence = SqliteEvidence(self._database, caps.evidence if caps else None)
        self.purses = SharedPurses(SqliteLedger(self._database, self._leases, lasting=sync))

    @property
    def key(self) -> bytes:
        """32 random bytes, made with the store."""
        if self._key is None:
            with self._database.transaction():
                self._database.run(
                    "INSERT INTO meta (name, value) VALUES ('key', ?) ON CONFLICT DO NOTHING",
                    (os.urandom(_KEY_BYTES),),
                )
                ((key,),) = self._database.run("SELECT value FROM meta WHERE name = 'key'")
            self._key = bytes(key)
        return self._key

    def lease(self, session: str, *, shared: bool = False) -> SessionLease:
        """Take a session."""
        return self._leases.take(session, shared=shared)

    def transaction(self) -> AbstractContextManager[None]:
        """All inside is one step."""
        return self._database.transaction()

    def close(self) -> None:
        """Close the file, and give back what is on lease.

        Raises `StoreError` where that cannot be written: it is taken back when this process ends.
        """
        try:
            self.purses.close()
        finally:
            self._database.close()


class SqliteAnchors:
    """See `policyguard.store.protocol.Anchors`."""

    def __init__(self, database: Database, cap: int | None) -> None:
        self._database = database
        self._cap = cap

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        rows = self._database.run(
            "SELECT session, chain, count, hash, size FROM anchors WHERE session = ?", (session,)
        )
        return self._anchor(rows[0]) if rows else None

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        with self._database.transaction():
            self._database.run(
                "INSERT INTO anchors (session, chain, count, hash, size, used) "
                "VALUES (?, ?, ?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM anchors)) "
                "ON CONFLICT DO UPDATE SET chain = excluded.chain, count = excluded.count, "
                "hash = excluded.hash, size = excluded.size, used = excluded.used",
                (anchor.session, anchor.chain, anchor.count, anchor.hash, anchor.size),
            )
            dropped = _trim(self._database, "anchors", "session", self._cap)
            if dropped:
                self._database.run(
                    "INSERT INTO meta (name, value) VALUES (?, ?) "
                    "ON CONFLICT DO UPDATE SET value = value + excluded.value",
                    (_DROPPED, dropped),
                )

    def forget(self, session: str) -> None:
        """Forget the session's anchor."""
        self._database.run("DELETE FROM anchors WHERE session = ?", (session,))

    def all(self) -> Iterator[Anchor]:
        """All anchors, by session; those set meanwhile may be among them or not."""
        first = ""
        while True:
            rows = self._database.run(
                "SELECT session, chain, count, hash, size FROM anchors "
                "WHERE session >= ? ORDER BY session LIMIT ?",
                (first, _BATCH),
            )
            for row in rows:
                yield self._anchor(row)
            if len(rows) < _BATCH:
                return
            first = f"{rows[-1][0]}\0"  # the least text that is greater

    def dropped(self) -> int:
        """How many went because there were too many."""
        return self._database.number(
            "SELECT ifnull(max(value), 0) FROM meta WHERE name = ?", (_DROPPED,)
        )

    def _anchor(self, row: tuple[object, ...]) -> Anchor:
        try:
            return msgspec.convert(dict(zip(Anchor.__struct_fields__, row, strict=True)), Anchor)
        except UNREADABLE as error:
            raise damaged(self._database.path, "an anchor", error) from None


_CONSTRAINT = "SELECT id, scope, key, state, updated_at, payload, revoked_by FROM constraints"


class SqliteConstraints:
    """See `policyguard.store.protocol.Constraints`."""

    def __init__(self, database: Database, cap: int | None) -> None:
        self._database = database
        self._cap = cap

    def put(self, record: Constraint, *, revive: bool = False) -> bool:
        """Write a constraint, unless it has been revoked."""
        with self._database.transaction():
            known = None if revive else self.get(record.id)
            if known is not None and known.state == REVOKED:
                return False
            version = self._changed()
            self._database.run(
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
            if _trim(self._database, "constraints", "id", self._cap):
                self._removed(version)
        return True

    def get(self, id: str) -> Constraint | None:  # noqa: A002 - the protocol's name
        """The constraint of this id."""
        return next(iter(self._read("WHERE id = ?", id)), None)

    def find(self, scope: str, key: str) -> tuple[Constraint, ...]:
        """The constraints under this scope and key."""
        return self._read("WHERE scope = ? AND key = ? ORDER BY id", scope, key)

    def list(self, scope: str | None = None, state: str | None = None) -> tuple[Constraint, ...]:
        """All constraints, or those of a scope or state."""
        given = {"scope": scope, "state": state}
        asked = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in asked)
        return self._read(f"{'WHERE ' if where else ''}{where} ORDER BY id", *asked.values())

    def revoke(self, id: str, *, by: str, at: int) -> Constraint | None:  # noqa: A002 - as above
        """Take a constraint back."""
        with self._database.transaction():
            if self.get(id) is None:
                return None
            self._database.run(
                "UPDATE constraints SET state = ?, revoked_by = ?, updated_at = ?, version = ? "
                "WHERE id = ?",
                (REVOKED, by, at, self._changed(), id),
            )
            return self.get(id)

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used."""
        with self._database.transaction():
            for id_ in ids:
                self._database.run(
                    "UPDATE constraints SET used = (SELECT max(used) + 1 FROM constraints) "
                    "WHERE id = ?",
                    (id_,),
                )

    def remove(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether."""
        with self._database.transaction():
            if self._database.run("DELETE FROM constraints WHERE id = ? RETURNING id", (id,)):
                self._removed(self._changed())

    def version(self) -> int:
        """Grows with every change."""
        return self._number("version")

    def changes(self, since: int) -> Changes:
        """What happened after version `since`."""
        with self._database.transaction(write=False):
            version = self.version()
            if since == version:
                return Changes(version, (), whole=False)
            # A version that is not ours yet is another store's: the file was replaced.
            if since < self._number("floor") or since > version or since <= 0:
                return Changes(version, self.list(), whole=True)
            return Changes(version, self._read("WHERE version > ? ORDER BY id", since), whole=False)

    def _read(self, where: str, *values: Value) -> tuple[Constraint, ...]:
        return tuple(
            Constraint(
                id=row[0],
                scope=row[1],
                key=row[2],
                state=row[3],
                updated_at=row[4],
                payload=row[5],
                revoked_by=row[6],
            )
            for row in self._database.run(f"{_CONSTRAINT} {where}", values)
        )

    def _changed(self) -> int:
        """The new version."""
        self._database.run("UPDATE meta SET value = value + 1 WHERE name = 'version'")
        return self.version()

    def _removed(self, version: int) -> None:
        self._database.run("UPDATE meta SET value = ? WHERE name = 'floor'", (version,))

    def _number(self, name: str) -> int:
        return self._database.number("SELECT value FROM meta WHERE name = ?", (name,))


class SqliteEvidence:
    """See `policyguard.store.protocol.Evidence`."""

    def __init__(self, database: Database, cap: int | None) -> None:
        self._database = database
        self._cap = cap

    def get(self, scope: str, key: str) -> bytes | None:
        """What is remembered under this scope and key."""
        rows = self._database.run(
            "SELECT payload FROM evidence WHERE scope = ? AND key = ?", (scope, key)
        )
        return rows[0][0] if rows else None

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Remember under this scope and key."""
        with self._database.transaction():
            self._database.run(
                "INSERT INTO evidence (scope, key, payload, used) "
                "VALUES (?, ?, ?, (SELECT ifnull(max(used), 0) + 1 FROM evidence)) "
                "ON CONFLICT DO UPDATE SET payload = excluded.payload, used = excluded.used",
                (scope, key, payload),
            )
            _trim(self._database, "evidence", "scope, key", self._cap)

    def forget(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key, or under the whole scope."""
        if key is None:
            self._database.run("DELETE FROM evidence WHERE scope = ?", (scope,))
        else:
            self._database.run("DELETE FROM evidence WHERE scope = ? AND key = ?", (scope, key))

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each."""
        where, values = ("", ()) if scope is None else ("WHERE scope = ?", (scope,))
        rows = self._database.run(
            f"SELECT scope, key, payload FROM evidence {where} ORDER BY scope, key",  # noqa: S608 - `where` is one of two texts above
            values,
        )
        return tuple((row[0], row[1], row[2]) for row in rows)


def _trim(database: Database, table: str, key: str, cap: int | None) -> int:
    """Remove the least recently used rows beyond the cap; how many there were."""
    if cap is None:
        return 0
    number = database.number("SELECT number FROM counts WHERE name = ?", (table,))
    if number <= cap:
        return 0
    database.run(
        f"DELETE FROM {table} WHERE ({key}) IN "  # noqa: S608 - both names are from this module
        f"(SELECT {key} FROM {table} ORDER BY used LIMIT ?)",
        (number - cap,),
    )
    return number - cap
