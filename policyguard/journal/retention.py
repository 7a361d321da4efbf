"""Delete expired journals: only what verifies, by hashed times, and never without a note.

The time of a file's last change proves nothing: an attacker who can write the file can set it. The
age of a journal is that of its last event: as anchored, to choose candidates, and as hashed, once
the whole file has been verified. What does not verify is kept and reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from policyguard.engines.operating_system import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK
from policyguard.journal.chain import ChainPosition, Hasher, decode_time
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.folder import SUFFIX, file_name, is_journal_name
from policyguard.journal.handover import lacks_lines, place_of
from policyguard.journal.journal_file import has_all_anchors
from policyguard.journal.left_over import find_pruning
from policyguard.journal.recovery import require_anchored, require_regular
from policyguard.journal.retention_terms import Retention, delete_anchor
from policyguard.journal.set_aside import prune_set_aside
from policyguard.journal.stored_copies import prune_copies
from policyguard.journal.whole_journal import follow_journal
from policyguard.store.errors import SessionBusyError
from policyguard.store.protocol import (
    Anchor,
    AnchorStore,
    LoadTimes,
    Pruned,
    SessionLock,
    SharedAnchorStore,
)

with suppress(ImportError):  # Windows, where stores in files and journals are refused
    import fcntl

_TAIL_BYTES = 65_536
"""The bytes at the end of a file without an anchor, among which its last line is looked for."""

_UNKNOWN = -1
"""The time of a journal without a line that has one. It is deleted only if it is in excess."""


class PruneResult(msgspec.Struct, frozen=True):
    """The deleted files, and why others that were due were kept."""

    deleted: tuple[Path, ...]
    kept: tuple[JournalError, ...]


class _Candidate(msgspec.Struct, frozen=True, order=True):
    """A journal: in excess are first those without an anchor, then the oldest."""

    is_anchored: bool
    at: int
    name: str


def note_load(anchors: AnchorStore, now: int, retention: Retention) -> LoadTimes:
    """Note a load at `now` (ns), and return since when the time is trusted.

    It is trusted if there was a load or an anchored event within `max_gap` before. Otherwise the
    clock may be wrong: nothing is old before it has run for `keep_for` from now on. Time that runs
    back by more than that is no better.
    """
    known = anchors.get_load_times()
    trusted_since = known.trusted_since if known is not None else None
    if trusted_since is not None and now - trusted_since >= retention.keep_for:
        trusted_since = None
    if known is None or abs(now - known.last) > retention.max_gap:
        times = [anchor.at for anchor in anchors.all()]
        is_new = known is None and not times
        runs_back = known is not None and now < known.last
        earliest = now - retention.max_gap
        is_near = any(at is not None and earliest <= at <= now for at in times)
        if runs_back or not (is_new or is_near):
            trusted_since = now
    load_times = LoadTimes(now, trusted_since)
    anchors.put_load_times(load_times)
    return load_times


def prune(
    folder: Path,
    anchors: AnchorStore,
    retention: Retention,
    *,
    now: int,
    before: int | None,
    hasher: Hasher,
    lock_session: Callable[[str], SessionLock],
    should_stop: Callable[[], bool] = lambda: False,
    dry_run: bool = False,
) -> PruneResult:
    """Delete the journals whose last event was `before` a time (ns), and those in excess.

    None is deleted whose session is open (`lock_session`), or that does not verify. The note comes
    first, then the anchor goes, then the file: a process that dies in between leaves a file without
    an anchor, not an anchor without a file, which would look like theft. It ends early between two
    files if it `should_stop`. With `dry_run` nothing is deleted, and whether a session is open is
    not looked at: asking for its lock is a write. Raises `JournalError`, `StoreError`.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise _deletion_error(folder, error) from None
    by_name = {file_name(anchor.session): anchor for anchor in anchors.all()}
    found = sorted(_find_candidates(folder, names, by_name))
    total = len(found)
    deleted: list[Path] = []
    kept: list[JournalError] = []
    for candidate in found:
        expired = before is not None and _UNKNOWN < candidate.at < before
        in_excess = total > retention.max_journals
        if not expired and not in_excess:
            continue
        if should_stop():
            break
        path, known = folder / candidate.name, by_name.get(candidate.name)
        anchor = known
        if _went_elsewhere(path, known, anchors):
            if find_pruning(path, anchors) is None:
                continue
            anchor = None  # of the session that began anew elsewhere
        try:
            due = _find_due(path, anchors, anchor, None if in_excess else before, hasher)
            if due is not None and (
                dry_run or _delete(due, known, anchors, retention, now, lock_session)
            ):
                deleted.append(path)
                total -= 1
        except JournalError as error:
            kept.append(error)
            total -= 1  # it pushes out no other
    if before is not None and isinstance(anchors, SharedAnchorStore):
        for results in (
            prune_copies(
                folder, anchors, retention, now, before, hasher, lock_session, dry_run=dry_run
            ),
            prune_set_aside(folder, before, hasher, dry_run=dry_run),
        ):
            for result in results:
                if isinstance(result, JournalError):
                    kept.append(result)
                else:
                    deleted.append(result)
                if should_stop():
                    break
    return PruneResult(tuple(deleted), tuple(kept))


def _went_elsewhere(path: Path, anchor: Anchor | None, anchors: AnchorStore) -> bool:
    """Whether a session has gone on elsewhere, where its journal is deleted when it is due."""
    return (
        anchor is not None
        and isinstance(anchors, SharedAnchorStore)
        and anchors.last_place(anchor.session) not in ("", place_of(path.parent))
        and lacks_lines(path, anchor)
    )


def _find_candidates(
    folder: Path, names: list[str], anchors: dict[str, Anchor]
) -> Iterator[_Candidate]:
    for name in names:
        if not is_journal_name(Path(name)):
            continue
        anchor = anchors.get(name)
        at = anchor.at if anchor is not None else None
        if at is None:
            at = _read_last_time(folder / name)
        yield _Candidate(anchor is not None, _UNKNOWN if at is None else at, name)


def _read_last_time(path: Path) -> int | None:
    """Return the time of the last line that has one, at the end of a file; None without one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    except OSError:
        return None
    try:
        require_regular(descriptor, path)
        start = max(0, os.fstat(descriptor).st_size - _TAIL_BYTES)
        lines = os.pread(descriptor, _TAIL_BYTES, start).split(b"\n")
    except (OSError, JournalError):
        return None
    finally:
        os.close(descriptor)
    times = (decode_time(line) for line in reversed(lines))
    return next((at for at in times if at is not None), None)


class _DueJournal(msgspec.Struct, frozen=True):
    """A journal that verifies and may go, as it was then: its file, its anchor and its end."""

    path: Path
    status: os.stat_result
    session: str
    anchor: Anchor | None
    end: ChainPosition


def _find_due(
    path: Path, anchors: AnchorStore, anchor: Anchor | None, before: int | None, hasher: Hasher
) -> _DueJournal | None:
    """Verify a journal; None if it is not due after all. Raises `AlteredError` if it does not.

    This may take long, so it locks nothing.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _deletion_error(path, error) from None
    try:
        require_regular(descriptor, path)
        status = os.fstat(descriptor)
        with os.fdopen(os.dup(descriptor), "rb") as lines:
            session, position, latest = follow_journal(lines, path, anchor, hasher)
        if anchor is None and has_all_anchors(anchors, None, hasher):
            _require_anchored(path, position, anchors, hasher)
    except OSError as error:
        raise _deletion_error(path, error) from None
    finally:
        os.close(descriptor)
    if before is not None and (latest is None or latest >= before):
        return None
    return _DueJournal(path, status, session, anchor, position)


def _delete(
    due: _DueJournal,
    known: Anchor | None,
    anchors: AnchorStore,
    retention: Retention,
    now: int,
    lock_session: Callable[[str], SessionLock],
) -> bool:
    """Delete a journal, unless its session is open, or has gone on since its anchor was `known`.

    Perhaps it had none then because the session had just begun.
    """
    path = due.path
    try:
        with lock_session(due.session):
            descriptor = os.open(path, os.O_RDWR | O_CLOEXEC | O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _version(os.fstat(descriptor)) != _version(due.status):
                    return False
                if anchors.get(due.session) != known:
                    return False
                if due.anchor is not None and not delete_anchor(
                    anchors, due.anchor, due.end, now, retention
                ):
                    return False
                path.unlink()
            finally:
                os.close(descriptor)
    except (SessionBusyError, BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise _deletion_error(path, error) from None
    return True


def _version(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes with every change of a file: its `st_ctime` cannot be set."""
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def _require_anchored(path: Path, end: ChainPosition, anchors: AnchorStore, hasher: Hasher) -> None:
    """Raise `AlteredError` if a journal lost its anchor otherwise than by being deleted."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        require_anchored(path, first, end.count, hasher)
    except AlteredError:
        # Perhaps a process died before it deleted the file, or another host deleted its anchor.
        notes = [note for note in anchors.notes() if isinstance(note, Pruned)]
        is_shared = isinstance(anchors, SharedAnchorStore)
        if not any(
            note.hash == end.hash or (is_shared and note.chain == end.chain) for note in notes
        ):
            raise


def _deletion_error(path: Path, error: OSError) -> JournalError:
    return JournalError(
        path, f"cannot be deleted: {error.strerror}", "check that you can write to the folder"
    )
