"""The store in PostgreSQL: the state of guards on any number of hosts."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Self

import msgspec

from policyguard.model.text import escape_surrogates
from policyguard.store.boot import TimeAnchor, anchor_time, read_time_id
from policyguard.store.errors import DECODE_ERRORS, SessionBusyError, StoreError, damaged_error
from policyguard.store.paths import JOURNAL_FOLDER, state_folder
from policyguard.store.postgres.anchors import PostgresAnchors, put_meta
from policyguard.store.postgres.database import Database
from policyguard.store.postgres.notifications import Notifications
from policyguard.store.postgres.quotas import PostgresQuotas
from policyguard.store.postgres.records import PostgresEvidence, PostgresRecords
from policyguard.store.protocol import Caps

_KEY_BYTES = 32


class PostgresStore:
    """See `policyguard.store.protocol.Store`. Journals stay on each host, in `journal_folder`.

    `address` is `postgresql://…`, with libpq's options (TLS among them). The database is
    connected to when it is first used, and again after it was away; its tables are made then.
    `term` is after how many seconds what a guard has leased of a budget counts in full.
    """

    def __init__(self, address: str, *, caps: Caps | None, term: float = 10.0) -> None:
        self._database = database = Database(address)
        name = hashlib.sha256(str(database.name).encode()).hexdigest()[:16]
        self.journal_folder = state_folder() / f"postgresql-{name}" / JOURNAL_FOLDER
        self._fingerprint_key: bytes | None = None
        self._openings: dict[str, int] = {}
        self.anchors = PostgresAnchors(database, caps.anchors if caps else None, self._openings)
        self._notifications = notifications = Notifications(database)
        self.constraints = PostgresRecords(
            database, caps.constraints if caps else None, "constraints", notifications.send
        )
        self.grants = PostgresRecords(
            database, caps.grants if caps else None, "grants", notifications.send
        )
        self.marks = PostgresRecords(database, None, "marks", lambda: None)  # asked at each check
        self.evidence = PostgresEvidence(database, caps.evidence if caps else None)
        self.quotas = PostgresQuotas(database, term)
        self._held: dict[int, SessionLock] = {}
        self._lock = threading.Lock()

    @property
    def fingerprint_key(self) -> bytes:
        """The key of fingerprints, created with the store."""
        if self._fingerprint_key is None:
            self._database.execute(
                "INSERT INTO meta (name, value) VALUES ('key', %s) ON CONFLICT DO NOTHING",
                (os.urandom(_KEY_BYTES),),
            )
            ((key,),) = self._database.execute("SELECT value FROM meta WHERE name = 'key'")
            self._fingerprint_key = bytes(key)
        return self._fingerprint_key

    def adopt_key(self, key: bytes) -> None:
        """Give a store without a key of fingerprints this one."""
        self._database.execute("INSERT INTO meta (name, value) VALUES ('key', %s)", (key,))
        self._fingerprint_key = None

    def anchor_time(self, offset: int, elapsed: int) -> int:
        # Each boot of each host has an offset of its own.
        id_ = read_time_id() or os.urandom(8).hex()
        name = f"time {hashlib.sha256(id_.encode()).hexdigest()[:32]}"
        with self._database.transaction():
            rows = self._database.execute(
                "SELECT value FROM meta WHERE name = %s FOR UPDATE", (name,)
            )
            try:
                known = msgspec.json.decode(rows[0][0], type=TimeAnchor) if rows else None
            except DECODE_ERRORS as error:
                raise damaged_error(self._database.name, "its time", error) from None
            anchor = anchor_time(known, id_, offset, elapsed)
            put_meta(self._database, name, msgspec.json.encode(anchor))
        return anchor.offset

    def lock_session(self, session: str) -> SessionLock:
        digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).digest()
        number = int.from_bytes(digest[:8], signed=True)
        name = escape_surrogates(session)
        with self._lock:
            held = self._held.get(number)
            if held is not None and held.is_held:
                raise self._busy(session, "by another guard of this process")
            with self._database.transaction():  # all on one connection, with which the lock ends
                ((locked,),) = self._database.execute(
                    "SELECT pg_try_advisory_xact_lock(%s)", (number,)
                )
                if not locked:
                    raise self._busy(session, "by another process")
                ((opening, before),) = self._database.execute(
                    "INSERT INTO holders (session, opening) VALUES (%s, nextval('openings')) "
                    "ON CONFLICT (session) DO UPDATE SET opening = excluded.opening, "
                    "opened = now() "
                    "RETURNING opening, (SELECT opening FROM holders WHERE session = %s)",
                    (name, name),
                )
                # Last, since a rollback would not release it as it does the one above.
                self._database.execute("SELECT pg_advisory_lock(%s)", (number,))
            self._openings[name] = opening
            lock = SessionLock(self, number, name, opening, before)
            self._held[number] = lock
            return lock

    def _busy(self, session: str, holder: str) -> SessionBusyError:
        return SessionBusyError(
            self._database.name,
            f"session {session!r:.80} is held {holder}",
            "close it there, or use another session id",
        )

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a method in another thread when any guard has changed constraints or grants."""
        self._notifications.listen(listener)

    @property
    def lock_generation(self) -> int:
        """Changes when the locks of sessions are lost: they end with the connection."""
        return self._database.generation

    def describe(self) -> dict[str, str | int]:
        """Return which database it is: host, port, name and user."""
        return self._database.describe()

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def close(self) -> None:
        """Return all quota leases and close the connection."""
        try:
            self._notifications.close()
            self.quotas.close()
        finally:
            self._database.close()


class SessionLock:
    """See `policyguard.store.protocol.SessionLock`: it ends with the connection that took it.

    `opening` numbers the openings of sessions by any host; `before` is this session's last.
    """

    def __init__(
        self, store: PostgresStore, number: int, session: str, opening: int, before: int | None
    ) -> None:
        self._store, self._number, self._session = store, number, session
        self.opening, self.before = opening, before
        self._generation = store._database.generation
        self._process = os.getpid()

    @property
    def is_held(self) -> bool:
        return (
            self._store._held.get(self._number) is self
            and self._process == os.getpid()
            and self._generation == self._store._database.generation
        )

    def release(self) -> None:
        with self._store._lock:
            if self.is_held:
                with suppress(StoreError):  # the lock has gone with the connection
                    self._store._database.execute("SELECT pg_advisory_unlock(%s)", (self._number,))
            if self._store._held.get(self._number) is self:
                del self._store._held[self._number]
                self._store._openings.pop(self._session, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
