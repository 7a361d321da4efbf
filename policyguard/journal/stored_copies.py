"""Delete expired journals that only the store has: their hosts never come back, or are behind.

A host deletes its own files. Of those that other hosts have, the store keeps the anchor and a copy
of the lines; whichever host finds these due deletes them, by the same proof as for a file. Should
the other host come back, the note explains its file, which is then deleted there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from policyguard.journal.chain import ChainPosition, Hasher
from policyguard.journal.errors import JournalError
from policyguard.journal.folder import file_name
from policyguard.journal.handover import lacks_lines, read_lines
from policyguard.journal.retention_terms import Retention, delete_anchor
from policyguard.journal.whole_journal import follow_journal
from policyguard.store.errors import SessionBusyError
from policyguard.store.protocol import Anchor, SessionLock, SharedAnchorStore


def prune_copies(
    folder: Path,
    anchors: SharedAnchorStore,
    retention: Retention,
    now: int,
    before: int,
    hasher: Hasher,
    lock_session: Callable[[str], SessionLock],
    *,
    dry_run: bool = False,
) -> Iterator[Path | JournalError]:
    """Delete the store's copies whose last event was `before` a time (ns), as hashed.

    Those that `folder` has are left to it. Yield the place and name of each that was deleted (with
    `dry_run`, would be), and why others that are due are kept. Raises `StoreError`.
    """
    for anchor in anchors.all():
        if anchor.at is None or anchor.at >= before:
            continue
        path = folder / file_name(anchor.session)
        if not lacks_lines(path, anchor):
            continue
        place = anchors.last_place(anchor.session)
        if not place:
            continue  # anchored without lines: only its file can prove how old it is
        copy = Path(place) / path.name
        try:
            end = _find_due_end(copy, anchor, anchors, before, hasher)
            if end is None:
                continue
            if dry_run or _delete(anchor, end, anchors, retention, now, lock_session):
                yield copy
        except JournalError as error:
            yield error


def _find_due_end(
    copy: Path, anchor: Anchor, anchors: SharedAnchorStore, before: int, hasher: Hasher
) -> ChainPosition | None:
    """Verify a copy; return where it ends, or None if it is not due after all."""
    lines = read_lines(anchors.lines(anchor.session), anchor.size)
    _, end, latest = follow_journal(lines, copy, anchor, hasher)
    return None if latest is None or latest >= before else end


def _delete(
    anchor: Anchor,
    end: ChainPosition,
    anchors: SharedAnchorStore,
    retention: Retention,
    now: int,
    lock_session: Callable[[str], SessionLock],
) -> bool:
    """Delete a copy, unless its session is open, or has gone on since it was verified."""
    try:
        with lock_session(anchor.session):
            return delete_anchor(anchors, anchor, end, now, retention)
    except SessionBusyError:
        return False
