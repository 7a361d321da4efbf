"""The journal of a guard, beside its store and as its policy configures it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.messages import redact_patterns
from policyguard.guard.host_log import warn
from policyguard.guard.host_reports import HostReports
from policyguard.journal.chain import Hasher, read_key
from policyguard.journal.findings import format_time
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redaction
from policyguard.journal.retention import Retention, note_load, prune
from policyguard.store.paths import journal_folder, resolve_path
from policyguard.store.protocol import Store


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
    store_path = getattr(store, "path", None)
    own = journal_folder(store_path) if isinstance(store_path, Path) else None
    if folder is None:
        return own
    if not isinstance(folder, (str, Path)):
        kind = type(folder).__name__
        raise TypeError(f"`journal` is the path of the journals' folder, not of type `{kind}`")
    if own is not None:
        raise ValueError(
            "`journal` is for stores that are no files; the journals of this one are in "
            f"`{own}`: leave `journal` out"
        )
    return resolve_path(folder, "name a folder")


def _read_key(file: object) -> bytes | None:
    """Return the key in a file. A key that is passed instead of a path is not shown."""
    if file is None:
        return None
    if not isinstance(file, (str, Path)):
        kind = type(file).__name__
        raise TypeError(f"`journal_key` is the path of a file with the key, not of type `{kind}`")
    return read_key(file)


def open_journal(
    compiled: CompiledPolicy,
    store: Store,
    location: JournalLocation,
    now: int,
    host_reports: HostReports,
) -> Journal | None:
    """Open the journal of a policy; None if the policy keeps none, or there is no folder.

    `ValueError` if there is none and a key is given. Journals older than `journal.keep_for`
    at `now` (ns) are removed, and those beyond `bounds.journals`. `host_reports` gets what
    opening a journal repairs.
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
    if settings.keep_for is not None:
        retention = Retention(
            keep_for=settings.keep_for,
            max_journals=policy.bounds.journals,
            max_gap=settings.max_gap,
            policy=policy.name,
            digest=compiled.evaluator.digest,
        )
        _prune(folder, store, retention, now, Hasher(key))
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


def _prune(folder: Path, store: Store, retention: Retention, now: int, hasher: Hasher) -> None:
    """Delete journals that are due; log which were kept nevertheless."""
    trusted_since = note_load(store.anchors, now, retention).trusted_since
    before: int | None = now - retention.keep_for
    if trusted_since is not None:
        before = None
        warn(
            f"{folder}: no journal is deleted by its age until "
            f"{format_time(trusted_since + retention.keep_for)}, since the clock made an "
            f"implausible step to {format_time(trusted_since)} (`journal.max_gap`); if the time is "
            "right and they should go now: policyguard journal prune"
        )
    result = prune(folder, store.anchors, retention, now=now, before=before, hasher=hasher)
    for error in result.kept:
        warn(f"a journal that is due was not deleted: {error}")


def _max_open_files() -> int:
    """Return how many files journals may have open: half of the process's limit.

    Beyond that, a session's file is closed and opened again, which takes a tenth of a millisecond.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(1, limit // 2)
