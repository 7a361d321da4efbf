"""Opens a store by its name: a file, or the address of a database."""

from __future__ import annotations

from pathlib import Path

from policyguard.store.errors import StoreError
from policyguard.store.paths import is_database_address
from policyguard.store.protocol import Caps, Store


def open_named_store(
    store: str | Path, *, caps: Caps | None, sync: bool = False, read_only: bool = False
) -> Store:
    """Open a SQLite file, created if it is new, or a PostgreSQL database.

    `sync` and `read_only` concern files: see `SqliteStore`. `StoreError` if it cannot be used, or
    needs a package that is not installed.
    """
    if not is_database_address(store):
        from policyguard.store.sqlite.store import SqliteStore

        return SqliteStore(store, caps=caps, sync=sync, read_only=read_only)
    try:
        from policyguard.store.postgres.store import PostgresStore
    except ImportError as error:
        missing = f"needs `{error.name}`, which is not installed"
        remedy = "pip install 'policyguard-engine[postgres]'"
        raise StoreError(Path("postgresql:…"), missing, remedy) from None
    return PostgresStore(str(store), caps=caps)
