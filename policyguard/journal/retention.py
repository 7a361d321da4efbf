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
from policyguard.journal.chain import (
    BrokenChainError,
    ChainPosition,
    Hasher,
    advance,
    decode_session,
    decode_time,
)
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.folder import SUFFIX, file_name, is_journal_name
from policyguard.journal.handover import lacks_lines, place_of
from policyguard.journal.journal_file import has_all_anchors
from policyguard.journal.recovery import (
    require_anchored,
    require_own_anchor,
    require_regular,
    require_same_key,
)
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


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which journals to delete, and who says so.

    Those older than `keep_for` (ns), and the oldest beyond `max_journals`. After no load and no
    event for `max_gap` (ns), the time is not trusted. `policy` and `digest` name the policy.
    """

    keep_for: int
    max_journals: int
    max_gap: int
    policy: str
    digest: str


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
) -> PruneResult:
    """Delete the journals whose last event was `before` a time (ns), and those in excess.

    None is deleted whose session is open (`lock_session`), or that does not verify. The note comes
    first, then the anchor goes, then the file: a process that dies in between leaves a file without
    an anchor, not an anchor without a file, which would look like theft. It ends early between two
    files if it `should_stop`. Raises `JournalError`, `StoreError`.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return PruneResult((), ())
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
        path = folder / candidate.name
        if _went_elsewhere(path, by_name.get(candidate.name), anchors):
            continue
        try:
            due = _find_due(
                path, anchors, by_name.get(candidate.name), None if in_excess else before, hasher
            )
            if due is not None and _delete(due, anchors, retention, now, lock_session):
                deleted.append(path)
                total -= 1
        except JournalError as error:
            kept.append(error)
            total -= 1  # it pushes out no other
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
        session, position, latest = _verify(descriptor, path, anchor, hasher)
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
    anchors: AnchorStore,
    retention: Retention,
    now: int,
    lock_session: Callable[[str], SessionLock],
) -> bool:
    """Delete a journal, unless its session is open, or has gone on since it was verified."""
    path, end = due.path, due.end
    try:
        with lock_session(due.session):
            descriptor = os.open(path, os.O_RDWR | O_CLOEXEC | O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _version(os.fstat(descriptor)) != _version(due.status):
                    return False
                if due.anchor is not None:
                    if anchors.get(due.session) != due.anchor:
                        return False
                    position = (end.chain, end.count, end.hash, end.size)
                    note = Pruned(due.session, *position, now, retention.policy, retention.digest)
                    anchors.add_note(note)
                    anchors.delete(due.session)
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


def _verify(
    descriptor: int, path: Path, anchor: Anchor | None, hasher: Hasher
) -> tuple[str, ChainPosition, int | None]:
    """Follow a whole journal. Return its session, its end, and the time of its latest event."""
    position = ChainPosition()
    session, latest, reached = "", None, False
    with os.fdopen(os.dup(descriptor), "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            if not position.count:
                try:
                    require_same_key(path, line, hasher)
                except JournalError:
                    raise AlteredError(path, "its hashes need another key, or none") from None
                session = decode_session(line) or ""
                if file_name(session) != path.name:
                    raise AlteredError(path, "it holds another session")
                if anchor is not None:
                    require_own_anchor(path, line, anchor, hasher)
            try:
                position = advance(hasher, session, position, line[:-1])
            except BrokenChainError as error:
                raise AlteredError(path, f"line {position.count + 1} {error}") from None
            at = decode_time(line)
            if at is not None:
                latest = at if latest is None else max(at, latest)
            if anchor is not None and position.count == anchor.count:
                reached = (position.chain, position.hash) == (anchor.chain, anchor.hash)
    if anchor is not None and not reached:
        raise AlteredError(path, f"it differs from its anchor, which counts {anchor.count} lines")
    return session, position, latest


def _require_anchored(path: Path, end: ChainPosition, anchors: AnchorStore, hasher: Hasher) -> None:
    """Raise `AlteredError` if a journal lost its anchor otherwise than by being deleted."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        require_anchored(path, first, end.count, hasher)
    except AlteredError:
        notes = anchors.notes()  # perhaps a process died before it deleted the file
        if not any(isinstance(note, Pruned) and note.hash == end.hash for note in notes):
            raise


def _deletion_error(path: Path, error: OSError) -> JournalError:
    return JournalError(
        path, f"cannot be deleted: {error.strerror}", "check that you can write to the folder"
    )
