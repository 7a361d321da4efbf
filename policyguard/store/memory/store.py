"""A store in memory, which ends with the process."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

import msgspec

from policyguard.store.boot import TimeAnchor, anchor_time
from policyguard.store.errors import SessionBusyError
from policyguard.store.memory.table import Table, UndoLog
from policyguard.store.protocol import (
    REVOKED,
    Anchor,
    Caps,
    JournalNote,
    LoadTimes,
    RecordChanges,
    RevocableRecord,
)
from policyguard.store.quota.memory import MemoryQuotaBackend
from policyguard.store.quota.quotas import SharedQuotas


class MemoryStore:
    """See `policyguard.store.protocol.Store`. A forked child continues with its own copy."""

    def __init__(self, *, caps: Caps) -> None:
        self._undo_log = UndoLog()
        self.fingerprint_key = os.urandom(32)
        self.anchors = MemoryAnchors(Table(self._undo_log, caps.anchors), caps.anchors)
        self.constraints = MemoryRecords(Table(self._undo_log, caps.constraints))
        self.grants = MemoryRecords(Table(self._undo_log, caps.grants))
        self.marks = MemoryRecords(Table(self._undo_log, None))
        self.evidence = MemoryEvidence(Table(self._undo_log, caps.evidence))
        self.quotas = SharedQuotas(MemoryQuotaBackend(self._undo_log))
        self._locks: WeakValueDictionary[str, MemorySessionLock] = WeakValueDictionary()
        self._time_anchor: TimeAnchor | None = None

    def anchor_time(self, offset: int, elapsed: int) -> int:
        with self._undo_log():
            self._time_anchor = anchor_time(self._time_anchor, "", offset, elapsed)
            return self._time_anchor.offset

    def lock_session(self, session: str) -> MemorySessionLock:
        with self._undo_log():
            if session in self._locks:
                raise SessionBusyError(
                    Path(":memory:"),
                    f"session {session!r:.80} is held by another guard of this process",
                    "close it there, or use another session id",
                )
            lock = self._locks[session] = MemorySessionLock(self._locks, session)
            return lock

    def transaction(self) -> AbstractContextManager[None]:
        return self._undo_log()

    def close(self) -> None:
        """Do nothing: no resource is open."""


class MemorySessionLock:
    """See `policyguard.store.protocol.SessionLock`."""

    def __init__(self, locks: WeakValueDictionary[str, MemorySessionLock], session: str) -> None:
        self._locks = locks
        self._session = session
        self._process = os.getpid()

    @property
    def is_held(self) -> bool:
        return self._locks.get(self._session) is self and self._process == os.getpid()

    def release(self) -> None:
        if self.is_held:
            del self._locks[self._session]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class MemoryAnchors:
    """See `policyguard.store.protocol.AnchorStore`."""

    def __init__(self, table: Table[str, Anchor], max_notes: int) -> None:
        self._table = table
        self._notes: tuple[JournalNote, ...] = ()
        self._max_notes = max_notes
        self._load_times: LoadTimes | None = None
        self._evicted = 0

    def get(self, session: str) -> Anchor | None:
        return self._table.rows.get(session)

    def put(self, anchor: Anchor) -> None:
        with self._table.undo_log():
            if self._table.put(anchor.session, anchor):
                undo = partial(setattr, self, "_evicted", self._evicted)
                self._table.undo_log.actions.append(undo)
                self._evicted += 1

    def delete(self, session: str) -> None:
        self._table.delete(session)

    def all(self) -> list[Anchor]:
        with self._table.undo_log():
            return sorted(self._table.rows.values(), key=lambda anchor: anchor.session)

    def count_evicted(self) -> int:
        return self._evicted

    def add_note(self, note: JournalNote) -> None:
        self._set("_notes", (*self._notes, note)[-self._max_notes :])

    def notes(self) -> tuple[JournalNote, ...]:
        return self._notes

    def get_load_times(self) -> LoadTimes | None:
        return self._load_times

    def put_load_times(self, times: LoadTimes) -> None:
        self._set("_load_times", times)

    def _set(self, name: str, value: object) -> None:
        with self._table.undo_log():
            undo = partial(setattr, self, name, getattr(self, name))
            self._table.undo_log.actions.append(undo)
            setattr(self, name, value)


class _VersionedRecord(msgspec.Struct, frozen=True):
    """A record, and the version that wrote it."""

    record: RevocableRecord
    version: int


class MemoryRecords:
    """See `policyguard.store.protocol.RevocableStore`."""

    def __init__(self, table: Table[str, _VersionedRecord]) -> None:
        self._table = table
        self._version = 0
        self._last_removal = 0
        self._changes: list[tuple[int, str]] = []

    def put(self, record: RevocableRecord) -> bool:
        with self._table.undo_log():
            existing = self.get(record.id)
            if existing is not None and existing.state == REVOKED:
                return False
            self._write(record)
        return True

    def update(
        self,
        id: str,  # noqa: A002 - the protocol's name
        make: Callable[[RevocableRecord | None, int], RevocableRecord],
    ) -> None:
        with self._table.undo_log():
            self._write(make(self.get(id), self._version + 1))

    def get(self, id: str) -> RevocableRecord | None:  # noqa: A002 - the protocol's name
        row = self._table.rows.get(id)
        return row.record if row is not None else None

    def list(self) -> tuple[RevocableRecord, ...]:
        with self._table.undo_log():
            return self._records(self._table.rows)

    def revoke(self, id: str, *, by: str, at: int) -> RevocableRecord | None:  # noqa: A002 - as above
        with self._table.undo_log():
            existing = self.get(id)
            if existing is None:
                return None
            revoked = msgspec.structs.replace(
                existing, state=REVOKED, revoked_by=by, updated_at=at, mac=""
            )
            self._write(revoked)
            return revoked

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        with self._table.undo_log():
            if id in self._table.rows:
                self._version += 1
                self._last_removal = self._version
                self._table.delete(id)

    def version(self) -> int:
        return self._version

    def advance(self, version: int) -> None:
        self._version = max(self._version, version)

    def changes(self, since: int) -> RecordChanges:
        with self._table.undo_log():
            version = self._version
            if since == version:
                return RecordChanges(version, (), is_complete=False)
            if since < self._last_removal or since > version or since <= 0:
                return RecordChanges(version, self.list(), is_complete=True)
            start = bisect_right(self._changes, since, key=lambda change: change[0])
            records = self._records({id_ for _, id_ in self._changes[start:]})
            return RecordChanges(version, records, is_complete=False)

    def _write(self, record: RevocableRecord) -> None:
        self._version += 1
        rows = self._table.rows
        if self._table.put(record.id, _VersionedRecord(record, self._version)):
            self._last_removal = self._version
        self._changes.append((self._version, record.id))
        if len(self._changes) > 2 * len(rows):
            self._changes = sorted((row.version, id_) for id_, row in rows.items())

    def _records(self, ids: Iterable[str]) -> tuple[RevocableRecord, ...]:
        rows = self._table.rows
        return tuple(rows[id_].record for id_ in sorted(ids) if id_ in rows)


class MemoryEvidence:
    """See `policyguard.store.protocol.EvidenceStore`."""

    def __init__(self, table: Table[tuple[str, str], bytes]) -> None:
        self._table = table

    def get(self, scope: str, key: str) -> bytes | None:
        return self._table.rows.get((scope, key))

    def put(self, scope: str, key: str, payload: bytes) -> None:
        self._table.put((scope, key), payload)

    def delete(self, scope: str, key: str) -> None:
        self._table.delete((scope, key))

    def delete_scope(self, scope: str) -> None:
        with self._table.undo_log():
            for one, key, _ in self.list(scope):
                self._table.delete((one, key))

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        with self._table.undo_log():
            return tuple(
                sorted(
                    (one, key, payload)
                    for (one, key), payload in self._table.rows.items()
                    if scope is None or one == scope or one.startswith(f"{scope}\x1f")
                )
            )
