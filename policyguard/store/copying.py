"""Copies all that a store holds into a new one, of the same kind or another.

The source is read in one step and must be at rest: a lease or an open session means that what is
read is about to change. The target is written in one step, so that a copy that is interrupted
leaves nothing, then read back and compared.

How the guards of one boot tell the time is not copied: another store begins that anew. Nor is which
records were used least recently: in the copy, that is their order by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Protocol

import msgspec

from policyguard.store.errors import StoreError
from policyguard.store.protocol import Anchor, JournalNote, LoadTimes, RevocableRecord, Store
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.quota.stored_usage import decode_usage


class StoredUsage(msgspec.Struct, frozen=True):
    """A shared budget's usage as both kinds of store keep it: JSON. From `until` on none counts."""

    budget: str
    key: str
    usage: bytes
    until: int | None

    @property
    def quota_key(self) -> QuotaKey:
        """What identifies it."""
        return QuotaKey(self.budget, self.key, self.key.partition("\x1f")[0])

    def complete_spec(self, spec: QuotaSpec, path: Path) -> QuotaSpec:
        """Return what is known of its budget, with the window that the usage shows."""
        latest = decode_usage(path, self.usage).latest_at
        if self.until is None or latest is None:
            return spec
        return msgspec.structs.replace(spec, within=max(1, self.until - latest))


class StoreContent(msgspec.Struct, frozen=True, kw_only=True):
    """What is copied, but for the lines of journals.

    `marks_version` is the version of the marks, which name versions in which they were cleared.
    `openings` are the numbers of the last openings of sessions, where a store numbers them, and
    `last_opening` the last that was given.
    """

    fingerprint_key: bytes
    anchors: tuple[Anchor, ...]
    evicted_anchors: int
    notes: tuple[JournalNote, ...]
    load_times: LoadTimes | None
    constraints: tuple[RevocableRecord, ...]
    grants: tuple[RevocableRecord, ...]
    marks: tuple[RevocableRecord, ...]
    marks_version: int
    evidence: tuple[tuple[str, str, bytes], ...]
    usages: tuple[StoredUsage, ...]
    openings: tuple[tuple[str, int], ...] = ()
    last_opening: int = 0


class JournalPiece(msgspec.Struct, frozen=True):
    """A piece of a session's journal from byte `start`, and the place where it was written."""

    session: str
    start: int
    content: bytes
    place: str


class StoreTransfer(Protocol):
    """What a copy needs of a kind of store, beside `Store`."""

    @property
    def path(self) -> Path:
        """The store's name, for errors."""

    def snapshot(self, *, write: bool = False) -> AbstractContextManager[None]:
        """Do everything inside in one step, however long it takes; only read unless `write`."""

    def settle(self, spec_of: Callable[[QuotaKey], QuotaSpec], at: int) -> None:
        """Count what dead holders of leases have used as used at `at` (ns, or when it was)."""

    def count_dead_leases(self) -> int:
        """Return the number of leases of budgets whose holders are dead, or have run out."""

    def leased_keys(self) -> frozenset[tuple[str, str]]:
        """Return budget and key of the usages that have leases."""

    def delete_usage(self, usage: StoredUsage) -> None:
        """Delete the usage of a budget."""

    def has_open_sessions(self) -> bool:
        """Whether some guard has a session open."""

    def find_edited(self) -> tuple[str, ...]:
        """Return the tables of which another program changed rows, as far as a store can tell."""

    def is_new(self) -> bool:
        """Whether the store holds nothing."""

    def read_usages(self) -> tuple[StoredUsage, ...]:
        """Return the usage of all shared budgets, by budget and key. Damage is a `StoreError`."""

    def read_openings(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """Return the openings of sessions by session, and the last number given."""

    def read_pieces(self) -> Iterator[JournalPiece]:
        """Yield the lines of journals, by session."""

    def write_own(self, content: StoreContent) -> None:
        """Write the key, the usages, the number of evicted anchors, and openings where it can."""

    def write_piece(self, piece: JournalPiece) -> None:
        """Write a piece of a journal, where the store keeps them."""


def copy_store(
    source: Store,
    target: Store,
    spec_of: Callable[[QuotaKey], QuotaSpec],
    at: int,
    on_ready: Callable[[], Iterable[JournalPiece]] = lambda: (),
) -> StoreContent:
    """Copy a store at rest into a new one, at `at` (ns); return what was copied.

    `spec_of` says what is known of a shared budget. `on_ready` is called before anything is
    written, and returns what the target gets of journals that the source does not keep. Raises
    `StoreError` if the source is in use, damaged or edited, if the target holds anything, or if
    what was written is not what is read from it.
    """
    giving, taking = open_transfer(source), open_transfer(target)
    if giving.path.resolve() == taking.path.resolve():
        raise StoreError(taking.path, "is the store to copy", "name a new one to copy it into")
    giving.settle(spec_of, at)
    with giving.snapshot():
        _require_rest(giving)
        _require_unedited(giving)
        content = read_content(source, giving)
        with taking.snapshot(write=True):
            if not taking.is_new():
                raise StoreError(taking.path, "holds something already", "copy into a new store")
            more = on_ready()
            _write_content(target, taking, content)
            for piece in chain(giving.read_pieces(), more):
                taking.write_piece(piece)
    with taking.snapshot():
        copied = read_content(target, taking)
        kept = content if copied.openings else _without_openings(content)
        if copied != kept:
            raise StoreError(
                taking.path, "does not hold what was copied into it", "remove it, and try again"
            )
    return content


def open_transfer(store: Store) -> StoreTransfer:
    """Return what a copy needs of a store. Raises `StoreError` for a kind that has none."""
    from policyguard.store.sqlite.store import SqliteStore

    if isinstance(store, SqliteStore):
        from policyguard.store.sqlite.transfer import SqliteTransfer

        return SqliteTransfer(store)
    try:
        from policyguard.store.postgres.store import PostgresStore
        from policyguard.store.postgres.transfer import PostgresTransfer
    except ImportError:
        pass
    else:
        if isinstance(store, PostgresStore):
            return PostgresTransfer(store)
    raise StoreError(Path(type(store).__name__), "cannot be copied", "name a file or a database")


def read_content(store: Store, transfer: StoreTransfer) -> StoreContent:
    """Return what a store holds. Raises `StoreError` for what is damaged."""
    openings, last_opening = transfer.read_openings()
    return StoreContent(
        fingerprint_key=store.fingerprint_key,
        anchors=tuple(store.anchors.all()),
        evicted_anchors=store.anchors.count_evicted(),
        notes=tuple(store.anchors.notes()),
        load_times=store.anchors.get_load_times(),
        constraints=store.constraints.list(),
        grants=store.grants.list(),
        marks=store.marks.list(),
        marks_version=store.marks.version(),
        evidence=store.evidence.list(),
        usages=transfer.read_usages(),
        openings=openings,
        last_opening=last_opening,
    )


def _require_rest(source: StoreTransfer) -> None:
    """Raise `StoreError` if a guard uses a store whose dead guards' leases are settled."""
    if source.has_open_sessions():
        raise StoreError(source.path, "is in use", "end the guards that use it")
    held = source.leased_keys()
    if held:
        raise StoreError(
            source.path,
            f"is in use: guards hold leases of shared budgets ({len(held)})",
            "end the guards that use it, and try again ten seconds later",
        )


def _require_unedited(source: StoreTransfer) -> None:
    """Raise `StoreError` for an edited store: the digests of a copy would hide it."""
    edited = source.find_edited()
    if edited:
        tables = ", ".join(f"`{table}`" for table in edited)
        raise StoreError(
            source.path,
            f"another program changed rows of {tables}",
            "restore a backup, or begin a new store; `policyguard journal verify` shows it too",
        )


def _write_content(target: Store, transfer: StoreTransfer, content: StoreContent) -> None:
    transfer.write_own(content)
    for anchor in content.anchors:
        target.anchors.put(anchor)
    for note in content.notes:
        target.anchors.add_note(note)
    if content.load_times is not None:
        target.anchors.put_load_times(content.load_times)
    for records, store in (
        (content.constraints, target.constraints),
        (content.grants, target.grants),
        (content.marks, target.marks),
    ):
        for record in records:
            store.put(record)
    target.marks.advance(content.marks_version)
    for scope, key, payload in content.evidence:
        target.evidence.put(scope, key, payload)


def _without_openings(content: StoreContent) -> StoreContent:
    return msgspec.structs.replace(content, openings=(), last_opening=0)
