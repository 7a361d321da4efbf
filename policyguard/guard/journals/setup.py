"""The journal of a guard, beside its store and as its policy configures it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.messages import redact_patterns
from policyguard.engines.operating_system import (
    NO_FILE_LOCKS,
    NO_FILE_LOCKS_REMEDY,
    has_file_locks,
)
from policyguard.guard.clock import SteadyClock
from policyguard.guard.host_log import warn
from policyguard.guard.host_reports import HostReports
from policyguard.journal.chain import Hasher, read_key
from policyguard.journal.errors import JournalError
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redaction
from policyguard.store.paths import find_journal_folder, journal_folder, resolve_path
from policyguard.store.protocol import Store

if TYPE_CHECKING:
    from policyguard.guard.journals.retention import JournalRetention


class JournalLocation(msgspec.Struct, frozen=True):
    """The folder of journals, if any, and the key of their hashes, which is never shown."""

    folder: Path | None
    key: bytes | None

    def __repr__(self) -> str:
        return f"<JournalLocation {self.folder}>"


def locate_journal(store: Store | None, folder: object, key_file: object) -> JournalLocation:
    """Find the folder of the journals, which the host names or the store has, and read their key.

    `TypeError`, `ValueError`, `StoreError` or `JournalError` if one of the two cannot be used.
    """
    if store is None:
        name = "journal_key" if folder is None else "journal"
        raise ValueError(f"`{name}` is for journals, which need a `store`: pass one")
    return JournalLocation(_resolve_folder(folder, store), _read_key(key_file))


def _resolve_folder(folder: object, store: Store) -> Path | None:
    own = find_journal_folder(store)
    if folder is None:
        return own
    if not isinstance(folder, (str, Path)):
        kind = type(folder).__name__
        raise TypeError(f"`journal` is the path of the journals' folder, not of type `{kind}`")
    if isinstance(getattr(store, "path", None), Path):
        raise ValueError(
            "`journal` is for stores that are no files; the journals of this one are in "
            f"`{own}`: leave `journal` out"
        )
    path = resolve_path(folder, "name a folder")
    if not has_file_locks():
        raise JournalError(path, NO_FILE_LOCKS, NO_FILE_LOCKS_REMEDY)
    return path


def _read_key(file: object) -> bytes | None:
    """Return the key in a file. A key that is passed instead of a path is not shown."""
    if file is None:
        return None
    if not isinstance(file, (str, Path)):
        kind = type(file).__name__
        raise TypeError(f"`journal_key` is the path of a file with the key, not of type `{kind}`")
    return read_key(file)


def open_journal(
    compiled: CompiledPolicy, store: Store, location: JournalLocation, host_reports: HostReports
) -> Journal | None:
    """Open the journal of a policy; None if the policy keeps none, or there is no folder.

    `ValueError` if there is none and a key is given. `host_reports` gets what opening a session's
    file repairs.
    """
    folder, key = location.folder, location.key
    policy = compiled.policy
    settings = policy.journal
    if folder is None or settings.durability == "memory":
        if key is not None:
            raise ValueError(
                "`journal_key` needs a journal: give a `store` that is a file, or a folder as "
                "`journal`, and a policy whose `journal.durability` is not `memory`"
            )
        if folder is None and settings.durability != "memory":
            warn(
                f"policy `{policy.name}`: no journal is written, and no session can be resumed: "
                "the store is no file; pass `journal=FOLDER`, or set `journal.durability: memory`"
            )
        return None
    path = getattr(store, "path", None)
    if isinstance(path, Path) and folder == journal_folder(path):
        _warn_of_other_store(path)
    return Journal(
        folder,
        store.anchors,
        redactions=Redaction(
            args=settings.args,
            results=settings.results,
            patterns=redact_patterns(policy),
            fingerprinter=compiled.fingerprinter,
            fingerprint_is_complete=policy.classify.fingerprint.result_chars is None,
        ).by_event_type,
        sync=settings.durability == "fsync",
        max_field_bytes=policy.bounds.argument_bytes,
        max_open_files=min(policy.bounds.sessions, _max_open_files()),
        key=key,
        on_finding=host_reports.add_repair,
    )


def _warn_of_other_store(path: Path) -> None:
    from policyguard.store.sqlite.store import find_other_store

    other = find_other_store(path)
    if other is not None:
        warn(
            f"the stores `{path}` and `{other}` share their journals, and the sessions of one look "
            "altered to the other: give each store a folder of its own"
        )


def apply_retention(
    compiled: CompiledPolicy, store: Store, location: JournalLocation, steady_clock: SteadyClock
) -> JournalRetention | None:
    """Delete the journals that a policy does not keep; None if it keeps all, or has none.

    They are those older than `journal.keep_for`, and those beyond `bounds.journals`.
    """
    settings = compiled.policy.journal
    folder, keep_for = location.folder, settings.keep_for
    if folder is None or settings.durability == "memory" or keep_for is None:
        return None
    from policyguard.guard.journals.retention import JournalRetention  # most policies keep all
    from policyguard.journal.retention_terms import Retention

    retention = Retention(
        keep_for=keep_for,
        max_journals=compiled.policy.bounds.journals,
        max_gap=settings.max_gap,
        policy=compiled.policy.name,
        digest=compiled.evaluator.digest,
    )
    applied = JournalRetention(folder, store, retention, Hasher(location.key), steady_clock)
    applied.apply()
    return applied


def _max_open_files() -> int:
    """Return how many files journals may have open: half of the process's limit.

    Beyond that, a session's file is closed and opened again, which takes a tenth of a millisecond.
    """
    import resource  # Windows has none, and no journals

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(1, limit // 2)
