"""A store in memory: it lasts as long as the process, and nothing is written anywhere."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from policyguard.store.errors import SessionBusyError
from policyguard.store.memory.table import Table, UndoLog
from policyguard.store.protocol import REVOKED, Anchor, Caps, ConstraintChanges, ConstraintRecord
from policyguard.store.quota.memory import MemoryQuotaBackend
from policyguard.store.quota.quotas import SharedQuotas


class MemoryStore:
    """See `policyguard.store.protocol.Store`. A forked child goes on with a copy of its own."""

    def __init__(self, *, caps: Caps) -> None:
        self._undo_log = UndoLog()
        self.fingerprint_key = os.urandom(32)
        self.anchors = MemoryAnchors(Table(self._undo_log, caps.anchors))
        self.constraints = MemoryConstraints(self._undo_log, caps.constraints)
        self.evidence = MemoryEvidence(Table(self._undo_log, caps.evidence))
        self.quotas = SharedQuotas(MemoryQuotaBackend(self._undo_log))
        self._locks: dict[str, weakref.WeakSet[MemorySessionLock]] = {}

    def lock_session(self, session: str, *, shared: bool = False) -> MemorySessionLock:
        """Take a session: there is no other process that could have it."""
        with self._undo_log():
            holders = self._locks.setdefault(session, weakref.WeakSet())
            if holders and not (shared and all(one.shared for one in holders)):
                raise SessionBusyError(
                    Path(":memory:"),
                    f"session {session!r:.80} is held by another guard of this process",
                    "end it there, or use another session id",
                )
            lease = MemorySessionLock(self._locks, session, shared=shared)
            holders.add(lease)
            return lease

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All inside is one step."""
        with self._undo_log():
            yield

    def close(self) -> None:
        """Nothing is held open."""


class MemorySessionLock:
    """See `policyguard.store.protocol.Lease`."""

    def __init__(
        self, locks: dict[str, weakref.WeakSet[MemorySessionLock]], session: str, *, shared: bool
    ) -> None:
        self._locks = locks
        self._session = session
        self._process = os.getpid()
        self.shared = shared

    @property
    def is_held(self) -> bool:
        """Whether it is held, by this very process."""
        return self in self._locks.get(self._session, ()) and self._process == os.getpid()

    def release(self) -> None:
        """Give the session up."""
        if self.is_held:
            self._locks[self._session].remove(self)
            if not self._locks[self._session]:
                del self._locks[self._session]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class MemoryAnchors:
    """See `policyguard.store.protocol.Anchors`."""

    def __init__(self, table: Table[str, Anchor]) -> None:
        self._table = table
        self._evicted = 0

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        return self._table.rows.get(session)

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        with self._table.undo_log():
            if self._table.put(anchor.session, anchor):
                self._table.undo_log.actions.append(
                    partial(setattr, self, "_dropped", self._evicted)
                )
                self._evicted += 1

    def delete(self, session: str) -> None:
        """Forget the session's anchor."""
        self._table.delete(session)

    def all(self) -> list[Anchor]:
        """All anchors, by session."""
        with self._table.undo_log():
            return sorted(self._table.rows.values(), key=lambda anchor: anchor.session)

    def count_evicted(self) -> int:
        """How many went because there were too many."""
        return self._evicted


class _VersionedRecord(msgspec.Struct, frozen=True):
    """A constraint, and the version at which it was written."""

    record: ConstraintRecord
    version: int


class MemoryConstraints:
    """See `policyguard.store.protocol.Constraints`."""

    def __init__(self, step: UndoLog, cap: int) -> None:
        self._undo_log = step
        self._table: Table[str, _VersionedRecord] = Table(step, cap, self._index)
        self._ids_by_key: dict[tuple[str, str], set[str]] = {}
        self._version = 0
        self._last_removal = 0
        self._changes: list[tuple[int, str]] = []

    def put(self, record: ConstraintRecord, *, revive: bool = False) -> bool:
        """Write a constraint, unless it has been revoked."""
        with self._undo_log():
            known = self.get(record.id)
            if known is not None and known.state == REVOKED and not revive:
                return False
            self._write(record)
        return True

    def get(self, id: str) -> ConstraintRecord | None:  # noqa: A002 - the protocol's name
        """The constraint of this id."""
        kept = self._table.rows.get(id)
        return kept.record if kept is not None else None

    def find(self, scope: str, key: str) -> tuple[ConstraintRecord, ...]:
        """The constraints under this scope and key."""
        with self._undo_log():
            return self._records(self._ids_by_key.get((scope, key), ()))

    def list(
        self, scope: str | None = None, state: str | None = None
    ) -> tuple[ConstraintRecord, ...]:
        """All constraints, or those of a scope or state."""
        with self._undo_log():
            return tuple(
                record
                for record in self._records(self._table.rows)
                if scope in (None, record.scope) and state in (None, record.state)
            )

    def revoke(self, id: str, *, by: str, at: int) -> ConstraintRecord | None:  # noqa: A002 - as above
        """Take a constraint back."""
        with self._undo_log():
            known = self.get(id)
            if known is None:
                return None
            revoked = msgspec.structs.replace(known, state=REVOKED, revoked_by=by, updated_at=at)
            self._write(revoked)
            return revoked

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used."""
        with self._undo_log():
            for id_ in ids:
                if id_ in self._table.rows:
                    self._table.rows.move_to_end(id_)

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether."""
        with self._undo_log():
            if id in self._table.rows:
                self._version += 1
                self._last_removal = self._version
                self._table.delete(id)

    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def changes(self, since: int) -> ConstraintChanges:
        """What happened after version `since`."""
        with self._undo_log():
            version = self._version
            if since == version:
                return ConstraintChanges(version, (), is_complete=False)
            if since < self._last_removal or since > version or since <= 0:
                return ConstraintChanges(version, self.list(), is_complete=True)
            late = self._changes[bisect_right(self._changes, since, key=lambda entry: entry[0]) :]
            return ConstraintChanges(
                version, self._records({id_ for _, id_ in late}), is_complete=False
            )

    def _write(self, record: ConstraintRecord) -> None:
        self._version += 1
        if self._table.put(record.id, _VersionedRecord(record, self._version)):
            self._last_removal = self._version
        self._changes.append((self._version, record.id))
        if len(self._changes) > 2 * len(self._table.rows):
            self._changes = sorted((kept.version, id_) for id_, kept in self._table.rows.items())

    def _records(self, ids: Iterable[str]) -> tuple[ConstraintRecord, ...]:
        rows = self._table.rows
        return tuple(rows[id_].record for id_ in sorted(ids) if id_ in rows)

    def _index(self, before: _VersionedRecord | None, after: _VersionedRecord | None) -> None:
        """Keep the index of places."""
        if before is not None:
            place = before.record.scope, before.record.key
            self._ids_by_key[place].discard(before.record.id)
            if not self._ids_by_key[place]:
                del self._ids_by_key[place]
        if after is not None:
            self._ids_by_key.setdefault((after.record.scope, after.record.key), set()).add(
                after.record.id
            )


class MemoryEvidence:
    """See `policyguard.store.protocol.Evidence`."""

    def __init__(self, table: Table[tuple[str, str], bytes]) -> None:
        self._table = table

    def get(self, scope: str, key: str) -> bytes | None:
        """What is remembered under this scope and key."""
        return self._table.rows.get((scope, key))

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Remember under this scope and key."""
        self._table.put((scope, key), payload)

    def delete(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key, or under the whole scope."""
        with self._table.undo_log():
            places = [place for place in self._table.rows if place[0] == scope]
            for place in [(scope, key)] if key is not None else places:
                self._table.delete(place)

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each."""
        with self._table.undo_log():
            return tuple(
                (*place, payload)
                for place, payload in sorted(self._table.rows.items())
                if scope in (None, place[0])
            )
