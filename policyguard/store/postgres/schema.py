"""The tables in PostgreSQL, as numbered migrations. A published one never changes."""

from __future__ import annotations

LOCK = 0x706F6C69_63796772
"""The advisory lock under which one process migrates."""

MIGRATIONS = (
    """
    CREATE TABLE meta (name text PRIMARY KEY, value bytea NOT NULL);
    CREATE TABLE counters (name text PRIMARY KEY, number bigint NOT NULL DEFAULT 0);
    CREATE SEQUENCE uses;
    CREATE TABLE anchors (
        session text PRIMARY KEY, chain text NOT NULL, count bigint NOT NULL, hash text NOT NULL,
        size bigint NOT NULL, at bigint, mac text NOT NULL, used bigint NOT NULL
    );
    CREATE INDEX anchors_used ON anchors (used);
    CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note bytea NOT NULL);
    CREATE TABLE constraints (
        id text PRIMARY KEY, scope text NOT NULL, key text NOT NULL, state text NOT NULL,
        updated_at bigint NOT NULL, payload bytea NOT NULL, revoked_by text NOT NULL,
        mac text NOT NULL, version bigint NOT NULL, used bigint NOT NULL
    );
    CREATE INDEX constraints_version ON constraints (version);
    CREATE INDEX constraints_used ON constraints (used);
    CREATE TABLE grants (LIKE constraints INCLUDING ALL);
    CREATE TABLE evidence (
        scope text, key text, payload bytea NOT NULL, used bigint NOT NULL,
        PRIMARY KEY (scope, key)
    );
    CREATE INDEX evidence_used ON evidence (used);
    CREATE TABLE quotas (
        budget text, key text, usage bytea NOT NULL, until bigint, PRIMARY KEY (budget, key)
    );
    CREATE TABLE leases (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, budget text NOT NULL,
        key text NOT NULL, amount numeric(30) NOT NULL, expires timestamptz NOT NULL,
        FOREIGN KEY (budget, key) REFERENCES quotas ON DELETE CASCADE
    );
    CREATE INDEX leases_quota ON leases (budget, key);
    """,
    """
    CREATE SEQUENCE openings;
    CREATE TABLE holders (
        session text PRIMARY KEY, opening bigint NOT NULL,
        opened timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE lines (
        session text REFERENCES anchors ON DELETE CASCADE, start bigint, size bigint NOT NULL,
        content bytea NOT NULL, place text NOT NULL, PRIMARY KEY (session, start)
    );
    """,
    "CREATE TABLE marks (LIKE constraints INCLUDING ALL)",
)
