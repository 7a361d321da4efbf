"""The schema of a store and its migrations.

Triggers maintain the number of rows (`counts`), since counting rows takes time proportional to it.
`used` grows with each use: the smallest is the least recently used.
"""

from __future__ import annotations

from policyguard.store.sqlite.database import Migration
from policyguard.store.sqlite.row_digest import DIGESTS, add_digest

APPLICATION_ID = 0x70677264
"""SQLite's `application_id` of our files: "pgrd"."""

_COUNT_TRIGGERS: Migration = (
    "INSERT INTO counts (name, number) VALUES ('{table}', 0)",
    "CREATE TRIGGER {table}_more AFTER INSERT ON {table} BEGIN "
    "UPDATE counts SET number = number + 1 WHERE name = '{table}'; END",
    "CREATE TRIGGER {table}_fewer AFTER DELETE ON {table} BEGIN "
    "UPDATE counts SET number = number - 1 WHERE name = '{table}'; END",
    "CREATE INDEX {table}_used ON {table} (used)",
)


def _count_triggers(table: str) -> Migration:
    return tuple(statement.format(table=table) for statement in _COUNT_TRIGGERS)


_INITIAL: Migration = (
    "CREATE TABLE counts (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    # `version` grows with each change of the constraints; `floor` is the last that removed one.
    "INSERT INTO meta (name, value) VALUES ('version', 0), ('floor', 0)",
    "CREATE TABLE anchors (session TEXT PRIMARY KEY, chain TEXT NOT NULL, count INTEGER NOT NULL, "
    "hash TEXT NOT NULL, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID",
    *_count_triggers("anchors"),
    "CREATE TABLE constraints (id TEXT PRIMARY KEY, scope TEXT NOT NULL, key TEXT NOT NULL, "
    "state TEXT NOT NULL, updated_at INTEGER NOT NULL, payload BLOB NOT NULL, "
    "revoked_by TEXT NOT NULL, version INTEGER NOT NULL, used INTEGER NOT NULL)",
    "CREATE INDEX constraints_place ON constraints (scope, key)",
    "CREATE INDEX constraints_version ON constraints (version)",
    *_count_triggers("constraints"),
    "CREATE TABLE evidence (scope TEXT NOT NULL, key TEXT NOT NULL, payload BLOB NOT NULL, "
    "used INTEGER NOT NULL, PRIMARY KEY (scope, key)) WITHOUT ROWID",
    *_count_triggers("evidence"),
)

_QUOTAS: Migration = (
    # `purses` are quotas, `shares` their leases. From `until` on nothing in the account counts.
    # Its amounts may exceed SQLite's integers, so it is JSON; those of shares may not.
    "CREATE TABLE purses (budget TEXT NOT NULL, key TEXT NOT NULL, account BLOB NOT NULL, "
    "until INTEGER, PRIMARY KEY (budget, key)) WITHOUT ROWID",
    "CREATE TABLE shares (id INTEGER PRIMARY KEY, budget TEXT NOT NULL, key TEXT NOT NULL, "
    "holder INTEGER NOT NULL, slot INTEGER NOT NULL UNIQUE, ceiling INTEGER NOT NULL, "
    "moved INTEGER NOT NULL, count INTEGER NOT NULL, boot TEXT NOT NULL)",
    "CREATE INDEX shares_place ON shares (budget, key)",
)

_RETENTION: Migration = (
    "ALTER TABLE anchors ADD COLUMN at INTEGER",
    # What was done to journals, as JSON, in order: `JournalNote`.
    "CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, note BLOB NOT NULL)",
)

_SIGNED_ANCHORS: Migration = ("ALTER TABLE anchors ADD COLUMN mac TEXT NOT NULL DEFAULT ''",)


def _create_records(table: str) -> Migration:
    return (
        f"CREATE TABLE {table} (id TEXT PRIMARY KEY, scope TEXT NOT NULL, key TEXT NOT NULL, "
        "state TEXT NOT NULL, updated_at INTEGER NOT NULL, payload BLOB NOT NULL, revoked_by "
        "TEXT NOT NULL, mac TEXT NOT NULL, version INTEGER NOT NULL, used INTEGER NOT NULL)",
        f"CREATE INDEX {table}_version ON {table} (version)",
        *_count_triggers(table),
        f"INSERT INTO meta (name, value) VALUES ('{table} version', 0), ('{table} floor', 0)",  # noqa: S608 - our names
        add_digest(table),
    )


MIGRATIONS: tuple[Migration, ...] = (
    _INITIAL,
    _QUOTAS,
    _RETENTION,
    _SIGNED_ANCHORS,
    DIGESTS,
    _create_records("grants"),
    _create_records("marks"),
)
"""In order. Append only: a published migration never changes."""
