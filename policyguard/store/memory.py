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
from policyguard.store.memory_ledger import MemoryLedger
from policyguard.store.protocol import REVOKED, Anchor, Caps, Changes, Constraint
from policyguard.store.purses import SharedPurses
from policyguard.store.table import Step, Table


class MemoryStore:
    """See `policyguard.store.protocol.Store`. A forked child goes on with a copy of its own."""

    def __init__(self, *, caps: Caps) -> None:
        self._step = Step()
        self.key = os.urandom(32)
        self.anchors = MemoryAnchors(Table(self._step, caps.anchors))
        self.constraints = MemoryConstraints(self._step, caps.constraints)
        self.evidence = MemoryEvidence(Table(self._step, caps.evidence))
        self.purses = SharedPurses(MemoryLedger(self._step))
        self._leased: dict[str, weakref.WeakSet[MemoryLease]] = {}

    def lease(self, session: str, *, shared: bool = False) -> MemoryLease:
        """Take a session: there is no other process that could have it."""
        with self._step():
            holders = self._leased.setdefault(session, weakref.WeakSet())
            if holders and not (shared and all(one.shared for one in holders)):
                raise SessionBusyError(
                    Path(":memory:"),
                    f"session {session!r:.80} is held by another guard of this process",
                    "end it there, or use another session id",
                )
            lease = MemoryLease(self._leased, session, shared=shared)
            holders.add(lease)
            return lease

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All inside is one step."""
        with self._step():
            yield

    def close(self) -> None:
        """Nothing is held open."""


class MemoryLease:
    """See `policyguard.store.protocol.Lease`."""

    def __init__(
        self, leased: dict[str, weakref.WeakSet[MemoryLease]], session: str, *, shared: bool
    ) -> None:
        self._leased = leased
        self._session = session
        self._process = os.getpid()
        self.shared = shared

    @property
    def held(self) -> bool:
        """Whether it is held, by this very process."""
        return self in self._leased.get(self._session, ()) and self._process == os.getpid()

    def close(self) -> None:
        """Give the session up."""
        if self.held:
            self._leased[self._session].remove(self)
            if not self._leased[self._session]:
                del self._leased[self._session]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryAnchors:
    """See `policyguard.store.protocol.Anchors`."""

    def __init__(self, table: Table[str, Anchor]) -> None:
        self._table = table
        self._dropped = 0

    def get(self, session: str) -> Anchor | None:
        """The session's anchor."""
        return self._table.rows.get(session)

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""
        with self._table.step():
            if self._table.put(anchor.session, anchor):
                self._table.step.undo.append(partial(setattr, self, "_dropped", self._dropped))
                self._dropped += 1

    def forget(self, session: str) -> None:
        """Forget the session's anchor."""
        self._table.remove(session)

    def all(self) -> list[Anchor]:
        """All anchors, by session."""
        with self._table.step():
            return sorted(self._table.rows.values(), key=lambda anchor: anchor.session)

    def dropped(self) -> int:
        """How many went because there were too many."""
        return self._dropped


class _Kept(msgspec.Struct, frozen=True):
    """A constraint, and the version at which it was written."""

    record: Constraint
    version: int


class MemoryConstraints:
    """See `policyguard.store.protocol.Constraints`."""

    def __init__(self, step: Step, cap: int) -> None:
        self._step = step
        self._table: Table[str, _Kept] = Table(step, cap, self._moved)
        self._places: dict[tuple[str, str], set[str]] = {}
        self._version = 0
        self._floor = 0
        self._log: list[tuple[int, str]] = []

    def put(self, record: Constraint, *, revive: bool = False) -> bool:
        """Write a constraint, unless it has been revoked."""
        with self._step():
            known = self.get(record.id)
            if known is not None and known.state == REVOKED and not revive:
                return False
            self._write(record)
        return True

    def get(self, id: str) -> Constraint | None:  # noqa: A002 - the protocol's name
        """The constraint of this id."""
        kept = self._table.rows.get(id)
        return kept.record if kept is not None else None

    def find(self, scope: str, key: str) -> tuple[Constraint, ...]:
        """The constraints under this scope and key."""
        with self._step():
            return self._records(self._places.get((scope, key), ()))

    def list(self, scope: str | None = None, state: str | None = None) -> tuple[Constraint, ...]:
        """All constraints, or those of a scope or state."""
        with self._step():
            return tuple(
                record
                for record in self._records(self._table.rows)
                if scope in (None, record.scope) and state in (None, record.state)
            )

    def revoke(self, id: str, *, by: str, at: int) -> Constraint | None:  # noqa: A002 - as above
        """Take a constraint back."""
        with self._step():
            known = self.get(id)
            if known is None:
                return None
            revoked = msgspec.structs.replace(known, state=REVOKED, revoked_by=by, updated_at=at)
            self._write(revoked)
            return revoked

    def touch(self, ids: Iterable[str]) -> None:
        """Note that these were used."""
        with self._step():
            for id_ in ids:
                if id_ in self._table.rows:
                    self._table.rows.move_to_end(id_)

    def remove(self, id: str) -> None:  # noqa: A002 - as above
        """Forget a constraint altogether."""
        with self._step():
            if id in self._table.rows:
                self._version += 1
                self._floor = self._version
                self._table.remove(id)

    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def changes(self, since: int) -> Changes:
        """What happened after version `since`."""
        with self._step():
            version = self._version
            if since == version:
                return Changes(version, (), whole=False)
            if since < self._floor or since > version or since <= 0:
                return Changes(version, self.list(), whole=True)
            late = self._log[bisect_right(self._log, since, key=lambda entry: entry[0]) :]
            return Changes(version, self._records({id_ for _, id_ in late}), whole=False)

    def _write(self, record: Constraint) -> None:
        self._version += 1
        if self._table.put(record.id, _Kept(record, self._version)):
            self._floor = self._version
        self._log.append((self._version, record.id))
        if len(self._log) > 2 * len(self._table.rows):
            self._log = sorted((kept.version, id_) for id_, kept in self._table.rows.items())

    def _records(self, ids: Iterable[str]) -> tuple[Constraint, ...]:
        rows = self._table.rows
        return tuple(rows[id_].record for id_ in sorted(ids) if id_ in rows)

    def _moved(self, before: _Kept | None, after: _Kept | None) -> None:
        """Keep the index of places."""
        if before is not None:
            place = before.record.scope, before.record.key
            self._places[place].discard(before.record.id)
            if not self._places[place]:
                del self._places[place]
        if after is not None:
            self._places.setdefault((after.record.scope, after.record.key), set()).add(
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

    def forget(self, scope: str, key: str | None = None) -> None:
        """Forget what is under this scope and key, or under the whole scope."""
        with self._table.step():
            places = [place for place in self._table.rows if place[0] == scope]
            for place in [(scope, key)] if key is not None else places:
                self._table.remove(place)

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Scope, key and payload of each."""
        with self._table.step():
            return tuple(
                (*place, payload)
                for place, payload in sorted(self._table.rows.items())
                if scope in (None, place[0])
            )
