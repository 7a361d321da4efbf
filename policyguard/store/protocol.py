"""The contract of a store, kept by the memory and SQLite stores alike.

A store keeps state that outlives a call, and most of it a process: the key of fingerprints, the
anchors of journals, session locks, constraints and evidence, grants, and the usage of shared
budgets. It treats constraints, evidence and grants as opaque bytes under a scope and a key. Callers
pass every time, in nanoseconds since 1970 (UTC): a store has no clock, and orders uses by counting.
It keeps how the guards of one boot tell the time, so that all count durations alike.

Every method may raise `StoreError`. Each is atomic; use `transaction` to combine several. All are
thread-safe and survive a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol, Self, runtime_checkable

import msgspec

from policyguard.store.quota.protocol import QuotaStore


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of each kind of record; beyond it the least recently used are evicted.

    The values are the policy's `bounds`; `anchors`, one per session, is `bounds.journals`, twice
    that with `journal.keep_for`. Guards bound the marks: which goes first depends on what it says.
    """

    constraints: int
    evidence: int
    grants: int
    anchors: int


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The known extent of a session's journal, stored apart from it to detect truncation.

    `chain` is the journal's random id, `count` its number of lines, `hash` the last line's hash,
    `size` its bytes, `at` the time of its last event that has one. `mac` shows that the holder of
    the journals' key wrote it; empty without a key.
    """

    session: str
    chain: str
    count: int
    hash: str
    size: int
    at: int | None = None
    mac: str = ""


class Pruned(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="note",
    tag="pruned",
):
    """A note that a journal was deleted at `at`, as `policy` (and its `digest`) says.

    The rest is what its anchor was, or its end if that was further, and in a store of several hosts
    the `place` where its last lines were written.
    """

    session: str
    chain: str
    count: int
    hash: str
    size: int
    at: int
    policy: str
    digest: str
    place: str = ""


class Repaired(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="note", tag="repaired"
):
    """A note that a journal was repaired when it was opened at `at`.

    From the line `first` (counted from 1) on, `adopted` lines had no anchor; of an unfinished line
    after them, `cut` bytes were removed. `is_keyed` means that the hashes needed a key.
    """

    session: str
    chain: str
    first: int
    adopted: int
    cut: int
    at: int
    is_keyed: bool


class BudgetReset(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="note", tag="reset"
):
    """A note that `by` set the usage of a shared budget to zero at `at`, when `used` was used.

    `used` is in the units of `QuotaSpec`. For a budget with keys, `key` names one.
    """

    budget: str
    key: str
    used: int
    by: str
    at: int


JournalNote = Pruned | Repaired | BudgetReset


class LoadTimes(msgspec.Struct, frozen=True):
    """When journals were last pruned or would have been (`last`), and since when time is trusted.

    `trusted_since` is None unless the clock has made an implausible step.
    """

    last: int
    trusted_since: int | None = None


class AnchorStore(Protocol):
    """The anchors of journals, one per session."""

    def get(self, session: str) -> Anchor | None:
        """Return the session's anchor."""

    def put(self, anchor: Anchor) -> None:
        """Set the session's anchor."""

    def delete(self, session: str) -> None:
        """Delete the session's anchor, if there is one."""

    def all(self) -> Iterable[Anchor]:
        """Return all anchors, by session."""

    def count_evicted(self) -> int:
        """Return how many anchors the cap evicted: nothing proves their journals."""

    def add_note(self, note: JournalNote) -> None:
        """Keep a note, with as many others as there may be anchors; the oldest are evicted."""

    def notes(self) -> Iterable[JournalNote]:
        """Return the notes, the oldest first."""

    def get_load_times(self) -> LoadTimes | None:
        """Return what `put_load_times` was last given."""

    def put_load_times(self, times: LoadTimes) -> None:
        """Keep the times of the latest load."""


@runtime_checkable
class SharedAnchorStore(AnchorStore, Protocol):
    """Anchors for several hosts: each comes with the lines that it covers and the one before not.

    So a session can go on with another host, which has no file of it. Who holds the session's lock
    may write it: a host that has lost that, while it slept, writes nothing more.
    """

    def put_lines(self, anchor: Anchor, start: int, lines: bytes, place: str) -> None:
        """Set the session's anchor, and keep the bytes of its journal from `start` to its end.

        `place` is where they were written, for people. Raises `SessionBusyError` if the session
        was opened elsewhere since this process did.
        """

    def lines(self, session: str) -> Iterable[bytes]:
        """Yield the bytes of a session's journal as far as they were put, in pieces."""

    def lines_size(self, session: str, place: str | None = None) -> int:
        """Return up to which byte a session's journal was put, from anywhere or from one place."""

    def last_place(self, session: str) -> str:
        """Return where the last lines were written; empty if there are none."""


class RevocableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored constraint, grant or mark; `payload` is opaque.

    The caller chooses `state`, except for `revoked`, which only `RevocableStore.revoke` sets.
    `mac` shows who wrote a record that only some may write; revoking it empties that.
    """

    id: str
    scope: str
    key: str
    state: str
    updated_at: int
    payload: bytes
    revoked_by: str = ""
    mac: str = ""


REVOKED = "revoked"
"""The state of a revoked record."""


class RecordChanges(msgspec.Struct, frozen=True):
    """The records written since a version.

    If `is_complete`, `records` are all there are, and any other was deleted. Pass `version` to
    the next `RevocableStore.changes`.
    """

    version: int
    records: tuple[RevocableRecord, ...]
    is_complete: bool


class RevocableStore(Protocol):
    """Learned constraints, grants or marks: records of all processes, which one may revoke."""

    def put(self, record: RevocableRecord) -> bool:
        """Write a record, new or existing; return False if its id is revoked."""

    def update(
        self,
        id: str,  # noqa: A002 - what it is called everywhere
        make: Callable[[RevocableRecord | None, int], RevocableRecord],
    ) -> None:
        """Replace a record in one step by what `make` returns for it, and for its new version."""

    def get(self, id: str) -> RevocableRecord | None:  # noqa: A002 - what it is called everywhere
        """Return the record with this id."""

    def list(self) -> tuple[RevocableRecord, ...]:
        """Return all records, by id."""

    def revoke(self, id: str, *, by: str, at: int) -> RevocableRecord | None:  # noqa: A002 - as above
        """Revoke a record for every process; return None if the id is unknown."""

    def delete(self, id: str) -> None:  # noqa: A002 - as above
        """Delete a record, if it exists."""

    def version(self) -> int:
        """Return a number that grows with every change by any process. Cheap to call.

        A version read in a transaction that was rolled back means nothing.
        """

    def advance(self, version: int) -> None:
        """Let the next version be one after `version` at least: records may name older ones."""

    def changes(self, since: int) -> RecordChanges:
        """Return the changes after version `since`; all records for 0."""


class EvidenceStore(Protocol):
    """Failures that have not become a constraint."""

    def get(self, scope: str, key: str) -> bytes | None:
        """Return the evidence under this scope and key."""

    def put(self, scope: str, key: str, payload: bytes) -> None:
        """Set the evidence under this scope and key."""

    def delete(self, scope: str, key: str) -> None:
        """Delete the evidence under this scope and key."""

    def delete_scope(self, scope: str) -> None:
        r"""Delete the evidence of a scope, and of those that begin with it and `\x1f`."""

    def list(self, scope: str | None = None) -> tuple[tuple[str, str, bytes], ...]:
        """Return scope, key and payload of each, or of what `delete_scope` would delete.

        In the order of scopes and keys.
        """


class SessionLock(Protocol):
    """Exclusive ownership of a session, until it is released or dropped, or the process dies."""

    @property
    def is_held(self) -> bool:
        """Whether this very process holds the lock: a forked child does not inherit it."""

    def release(self) -> None:
        """Release the session."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Store(Protocol):
    """One place for lasting state."""

    @property
    def fingerprint_key(self) -> bytes:
        """The key of the store's fingerprints: 32 random bytes that never change."""

    @property
    def anchors(self) -> AnchorStore:
        """The anchors of journals."""

    @property
    def constraints(self) -> RevocableStore:
        """The learned constraints."""

    @property
    def grants(self) -> RevocableStore:
        """The grants: approvals that are remembered."""

    @property
    def marks(self) -> RevocableStore:
        """The marks of agents and projects."""

    @property
    def evidence(self) -> EvidenceStore:
        """The evidence for future constraints."""

    @property
    def quotas(self) -> QuotaStore:
        """The usage of shared budgets."""

    def anchor_time(self, offset: int, elapsed: int) -> int:
        """Return by how much the time of events is ahead of the time since boot, `elapsed` (ns).

        That is `offset` for the first guard of a boot, and the same for all others of that boot.
        It is larger where that would be a time before the last call of this method.
        """

    def lock_session(self, session: str) -> SessionLock:
        """Lock a session; raise `SessionBusyError` if another process or guard holds it."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make all reads and writes inside one step, to threads and processes alike.

        An exception rolls everything back. Transactions nest: the outermost one counts.
        """

    def close(self) -> None:
        """Release resources. The store reopens when it is used again."""
