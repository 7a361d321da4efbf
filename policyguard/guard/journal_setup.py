"""The journal of a guard, beside its store and as its policy configures it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.messages import redact_patterns
from policyguard.guard.host_log import warn
from policyguard.guard.repairs import RepairReports
from policyguard.journal.chain import Hasher, read_key
from policyguard.journal.findings import format_time
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redaction
from policyguard.journal.retention import Retention, note_load, prune
from policyguard.store.paths import journal_folder
from policyguard.store.protocol import Store


def read_journal_key(file: object) -> bytes:
    """Return the key in a file. A key that is passed instead of a path is not shown."""
    if not isinstance(file, (str, Path)):
        kind = type(file).__name__
        raise TypeError(f"`journal_key` is the path of a file with the key, not of type `{kind}`")
    return read_key(file)


def open_journal(
    compiled: CompiledPolicy, store: Store, now: int, key: bytes | None, repairs: RepairReports
) -> Journal | None:
    """Open the journal of a policy; None if the policy or the store keeps none.

    `ValueError` if there is none and a `key` is given. Journals older than `journal.keep_for`
    at `now` (ns) are removed, and those beyond `bounds.journals`. `repairs` gets what opening a
    journal repairs.
    """
    store_path = getattr(store, "path", None)
    policy = compiled.policy
    settings = policy.journal
    if not isinstance(store_path, Path) or settings.durability == "memory":
        if key is not None:
            raise ValueError(
                "`journal_key` needs a journal: give a `store` that is a file, and a policy whose "
                "`journal.durability` is not `memory`"
            )
        return None
    folder = journal_folder(store_path)
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
        on_finding=repairs.note,
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
