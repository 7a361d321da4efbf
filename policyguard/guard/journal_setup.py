"""What a guard writes down: the journal that a policy asks for, beside a store."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.redact_patterns import redact_patterns
from policyguard.journal.hash_key import read_key
from policyguard.journal.journal import Journal
from policyguard.journal.redaction import Redaction
from policyguard.journal.retention import prune
from policyguard.store.paths import journal_folder
from policyguard.store.protocol import Store


def read_journal_key(file: object) -> bytes:
    """The key in a file. Where it is given itself, that is not shown."""
    if not isinstance(file, (str, Path)):
        kind = type(file).__name__
        raise TypeError(f"`journal_key` is the path of a file with the key, not of type `{kind}`")
    return read_key(file)


def open_journal(
    compiled: CompiledPolicy, store: Store, now: int, key: bytes | None
) -> Journal | None:
    """The journal of a policy; None where the policy or the store keeps none.

    With a `key` there must be one: `ValueError`. Journals that have been kept for
    `journal.keep_for` at `now` (ns) are removed, and those beyond `bounds.journals` with them.
    """
    place = getattr(store, "path", None)
    policy = compiled.policy
    settings = policy.journal
    if not isinstance(place, Path) or settings.durability == "memory":
        if key is not None:
            raise ValueError(
                "`journal_key` is given, and there is no journal: give a `store` that is a file, "
                "and a policy whose `journal.durability` is not `memory`"
            )
        return None
    folder = journal_folder(place)
    if settings.keep_for is not None:
        most = policy.bounds.journals
        prune(folder, store.anchors, before=now - settings.keep_for, max_journals=most)
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
    )


def _max_open_files() -> int:
    """How many files journals may have open: half of what the process may, the rest is the host's.

    A journal that is closed for another's sake is opened again when its session goes on, for a
    tenth of a millisecond.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else max(1, most // 2)
