"""What a copy needs of a store in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from policyguard.store.copying import JournalPiece, StoreContent, StoredUsage
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.quota.stored_usage import decode_usage, encode_usage
from policyguard.store.sqlite.store import SqliteStore

_TABLES = ("anchors", "notes", "constraints", "grants", "marks", "evidence", "purses", "shares")


class SqliteTransfer:
    """See `policyguard.store.copying.StoreTransfer`. Journals are files beside the store's."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._database = store, store._database
        self._backend = store.quotas._backend
        self.path: Path = store.path

    def snapshot(self, *, write: bool = False) -> AbstractContextManager[None]:
        return self._database.transaction(write=write)

    def settle(self, spec_of: Callable[[QuotaKey], QuotaSpec], at: int) -> None:
        for one in self.read_usages():
            spec = one.complete_spec(spec_of(one.quota_key), self.path)
            with self._database.transaction():
                self._store.quotas.settle(one.quota_key, spec, at)

    def count_dead_leases(self) -> int:
        rows = self._database.execute("SELECT holder, boot FROM shares")
        own_boot = ("", self._backend.boot_id)
        return sum(
            boot not in own_boot or not self._backend.is_alive(holder) for holder, boot in rows
        )

    def leased_keys(self) -> frozenset[tuple[str, str]]:
        return frozenset(self._database.execute("SELECT budget, key FROM shares"))

    def delete_usage(self, usage: StoredUsage) -> None:
        self._backend.delete_usage(usage.quota_key)

    def has_open_sessions(self) -> bool:
        return self._store.has_locks()

    def find_edited(self) -> tuple[str, ...]:
        return self._store.find_edited()

    def is_new(self) -> bool:
        rows = sum(self._database.query_int(f"SELECT count(*) FROM {one}") for one in _TABLES)  # noqa: S608 - our names
        return not (
            rows or self._database.query_int("SELECT count(*) FROM meta WHERE name = 'key'")
        )

    def read_usages(self) -> tuple[StoredUsage, ...]:
        found = []
        for budget, key, until in self._database.execute(
            "SELECT budget, key, until FROM purses ORDER BY budget, key"
        ):
            usage = self._backend.get_usage(QuotaKey(budget, key, ""))
            if usage is not None:
                found.append(StoredUsage(budget, key, encode_usage(usage), until))
        return tuple(found)

    def read_openings(self) -> tuple[tuple[tuple[str, int], ...], int]:
        return (), 0

    def read_pieces(self) -> Iterator[JournalPiece]:
        return iter(())

    def write_own(self, content: StoreContent) -> None:
        self._store.adopt_key(content.fingerprint_key)
        for one in content.usages:
            usage = decode_usage(self.path, one.usage)
            self._backend.put_usage(one.quota_key, usage, one.until)
        if content.evicted_anchors:
            self._store.anchors.note_evicted(content.evicted_anchors)

    def write_piece(self, piece: JournalPiece) -> None:
        """Write nothing: a session's journal is a file."""
