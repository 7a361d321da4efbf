"""Where state lasts: memory, or one SQLite file.

`Store` is the promise, `MemoryStore` and `SqliteStore` keep it; `default_store` and
`default_journal` are the user's own places.
"""

from policyguard.store.durable import SqliteStore
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.memory import MemoryStore
from policyguard.store.place import default_journal, default_store
from policyguard.store.protocol import (
    REVOKED,
    Anchor,
    Anchors,
    Caps,
    Changes,
    Constraint,
    Constraints,
    Evidence,
    Lease,
    Store,
)

__all__ = [
    "REVOKED",
    "Anchor",
    "Anchors",
    "Caps",
    "Changes",
    "Constraint",
    "Constraints",
    "Evidence",
    "Lease",
    "MemoryStore",
    "SqliteStore",
    "SessionBusyError",
    "Store",
    "StoreError",
    "default_journal",
    "default_store",
]
