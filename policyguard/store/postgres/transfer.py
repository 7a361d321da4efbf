"""What a copy needs of a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from policyguard.store.copying import JournalPiece, StoreContent, StoredUsage
from policyguard.store.postgres.store import PostgresStore
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec
from policyguard.store.quota.stored_usage import decode_usage, encode_usage

_TABLES = (
    "anchors",
    "notes",
    "constraints",
    "grants",
    "marks",
    "evidence",
    "quotas",
    "leases",
    "holders",
)
_UNHURRIED = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)
_BATCH_PIECES = 32


class PostgresTransfer:
    """See `policyguard.store.copying.StoreTransfer`."""

    def __init__(self, store: PostgresStore) -> None:
        self._store, self._database = store, store._database
        self.path: Path = self._database.name

    @contextmanager
    def snapshot(self, *, write: bool = False) -> Iterator[None]:
        with self._database.transaction():
            for statement in _UNHURRIED:
                self._database.execute(statement)
            yield

    def settle(self, spec_of: Callable[[QuotaKey], QuotaSpec], at: int) -> None:
        for one in self.read_usages():
            spec = one.complete_spec(spec_of(one.quota_key), self.path)
            self._store.quotas.settle(one.quota_key, spec, at)

    def count_dead_leases(self) -> int:
        ((count,),) = self._database.execute(
            "SELECT count(*) FROM leases WHERE expires < clock_timestamp()"
        )
        return int(count)

    def leased_keys(self) -> frozenset[tuple[str, str]]:
        return frozenset(self._database.execute("SELECT budget, key FROM leases"))

    def delete_usage(self, usage: StoredUsage) -> None:
        self._database.execute(
            "DELETE FROM quotas WHERE budget = %s AND key = %s", (usage.budget, usage.key)
        )

    def has_open_sessions(self) -> bool:
        # A session's lock is an advisory one; migrations and budgets hold theirs for a moment.
        held = self._database.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND pid <> pg_backend_pid() "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(held)

    def find_edited(self) -> tuple[str, ...]:
        return ()  # rows have no digests: who may write the tables is up to the database

    def is_new(self) -> bool:
        select = "SELECT 1 FROM {} LIMIT 1"
        has_rows = any(self._database.execute(select.format(table)) for table in _TABLES)
        return not (has_rows or self._database.execute("SELECT 1 FROM meta WHERE name = 'key'"))

    def read_usages(self) -> tuple[StoredUsage, ...]:
        rows = self._database.execute(
            "SELECT budget, key, usage, until FROM quotas "
            'ORDER BY budget COLLATE "C", key COLLATE "C"'
        )
        return tuple(
            StoredUsage(budget, key, encode_usage(decode_usage(self.path, usage)), until)
            for budget, key, usage, until in rows
        )

    def read_openings(self) -> tuple[tuple[tuple[str, int], ...], int]:
        rows = self._database.execute(
            'SELECT session, opening FROM holders ORDER BY session COLLATE "C"'
        )
        last = self._database.execute("SELECT last_value FROM openings WHERE is_called")
        openings = tuple((session, opening) for session, opening in rows)
        return openings, int(last[0][0]) if last else 0

    def read_pieces(self) -> Iterator[JournalPiece]:
        after: tuple[str, int] = ("", -1)
        while True:
            rows = self._database.execute(
                "SELECT session, start, content, size, place FROM lines "
                "WHERE (session, start) > (%s, %s) ORDER BY session, start LIMIT %s",
                (*after, _BATCH_PIECES),
            )
            for session, start, content, size, place in rows:
                lines = self._store.anchors.unpack(content, size)
                yield JournalPiece(session, start, lines, place)
            if len(rows) < _BATCH_PIECES:
                return
            after = rows[-1][0], rows[-1][1]

    def write_own(self, content: StoreContent) -> None:
        self._store.adopt_key(content.fingerprint_key)
        for one in content.usages:
            self._database.execute(
                "INSERT INTO quotas (budget, key, usage, until) VALUES (%s, %s, %s, %s)",
                (one.budget, one.key, one.usage, one.until),
            )
        if content.evicted_anchors:
            self._store.anchors.note_evicted(content.evicted_anchors)
        for session, opening in content.openings:
            self._database.execute(
                "INSERT INTO holders (session, opening) VALUES (%s, %s)", (session, opening)
            )
        if content.last_opening:
            self._database.execute("SELECT setval('openings', %s)", (content.last_opening,))

    def write_piece(self, piece: JournalPiece) -> None:
        self._store.anchors.add_lines(piece.session, piece.start, piece.content, piece.place)
