"""A session's file, open for writing: one `write` per line."""

from __future__ import annotations

import errno
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from policyguard.engines.operating_system import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW
from policyguard.journal.anchors.mac import is_unsigned, sign_anchor
from policyguard.journal.chain import Chain, Hasher, decode_time
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import VerifyFinding, describe_repair, describe_unsigned
from policyguard.journal.handover import lacks_lines, place_of, take_over
from policyguard.journal.left_over import set_left_over_aside
from policyguard.journal.recovery import first_key_id, recover, require_regular
from policyguard.model.text import escape_surrogates
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.paths import FILE_MODE
from policyguard.store.protocol import Anchor, AnchorStore, Repaired, SharedAnchorStore

with suppress(ImportError):  # Windows, where stores in files and journals are refused
    import fcntl

_LOCK_ATTEMPTS, _LOCK_RETRY_SECONDS = 20, 0.005
"""Retries for a lock, which `retention` holds for a moment."""

_ANCHOR_INTERVAL = 1_000_000_000
"""Nanoseconds after which the next event is anchored, whatever its type."""

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | O_CLOEXEC | O_NOFOLLOW


class JournalFile:
    """The writing end of one session's chain.

    While open it excludes all other writers, even of this process (`flock`). After an error it
    calls `on_failure` and must be reopened: the file may be longer than it knows. `session_json` is
    the session's id as JSON. It anchors an event every second (of `monotonic`, in ns).
    `on_finding` receives the session and what was repaired, `on_lost` the session when its anchor
    is refused, since another host has opened it.
    """

    def __init__(
        self,
        path: Path,
        session: str,
        *,
        anchors: AnchorStore,
        hasher: Hasher,
        sync: bool,
        on_finding: Callable[[str, VerifyFinding], None],
        monotonic: Callable[[], int],
        on_failure: Callable[[JournalFile], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self.path = path
        self.session = session
        self._session_text = named = escape_surrogates(session)
        self.session_json = msgspec.json.encode(named).decode()
        self._anchors = anchors
        self._shared = anchors if isinstance(anchors, SharedAnchorStore) else None
        self._sync = sync
        findings: list[VerifyFinding] = []
        anchor, is_taken_over = None, False
        if self._shared is not None:
            anchor = anchors.get(named)
            if anchor is None:
                findings += set_left_over_aside(path, anchors)
            elif lacks_lines(path, anchor):
                findings += take_over(path, anchor, self._shared)
                is_taken_over = True
        self._descriptor, created = _open(path)
        self._monotonic = monotonic
        self._anchor_due = monotonic() + _ANCHOR_INTERVAL
        self._on_failure, self._on_lost = on_failure, on_lost
        try:
            if self._shared is None:  # else the lock of the session excludes others
                anchor = anchors.get(named)
            position, repaired = recover(
                self._descriptor,
                path,
                named,
                anchor,
                hasher,
                self._add_note,
                has_all_anchors=has_all_anchors(anchors, anchor, hasher),
            )
            unsigned = _has_unsigned_anchor(self._descriptor, anchor, hasher)
            if created and sync:
                _sync_folder(path.parent)
        except BaseException as error:
            os.close(self._descriptor)
            if isinstance(error, OSError):
                raise _write_error(path, error) from None
            raise
        id_ = position.chain or os.urandom(16).hex()
        last = position.hash or hasher.genesis(named, id_)
        self._chain = Chain(hasher, id_, position.count, last)
        self._size = position.size
        self._hasher = hasher
        if (hasher.key_id or self._shared is not None) and not position.count:
            self._anchor_due = 0  # see `anchor_mac`; and another host would begin another chain
        self._anchored_count = anchor.count if anchor is not None and not unsigned else 0
        self._anchored_at = anchor.at if anchor is not None else None
        # What a store of several hosts has of the file; 0 also where it began without that.
        self._shared_size = self._shared.lines_size(named) if self._shared is not None else 0
        self._last_event = ""
        # Closes the file of a guard that was garbage collected.
        self._finalizer = weakref.finalize(self, os.close, self._descriptor)
        self._finalizer.atexit = False
        if repaired is not None:
            findings += describe_repair(path, repaired)
        if unsigned:
            findings.append(describe_unsigned(path))
        for finding in findings:
            on_finding(session, finding)
        if findings:
            try:  # noted once: what is anchored is not adopted again
                self.anchor()
            except SessionBusyError:
                self.close()
                raise
            except StoreError:
                pass
        if is_taken_over:  # the first line is saved at once: from then on it is this host's
            self._anchor_due = 0

    def append(self, event: str, masked: bool, anchor: bool) -> None:
        """Append an event, given as JSON without its closing brace.

        Raises `JournalError` if it was not written, `StoreError` if it was not anchored.
        """
        try:
            line = self._chain.seal(event, masked)
            size = len(line)
            written = os.write(self._descriptor, line)
            while written < size:
                written += os.write(self._descriptor, line[written:])
            if self._sync:
                os.fsync(self._descriptor)
            self._size += size
            self._last_event = event
        except OSError as error:
            self._truncate()
            self._on_failure(self)
            raise _write_error(self.path, error) from None
        except BaseException:  # a signal may have come after the write
            self._on_failure(self)
            raise
        if anchor or self._monotonic() >= self._anchor_due:
            self._check_file()
            self.anchor()

    def anchor(self) -> None:
        """Save an anchor for the lines so far. Raises `StoreError`."""
        chain = self._chain
        try:
            if chain.count > self._anchored_count:
                at = decode_time(f"{self._last_event}}}") if self._last_event else None
                if at is None:  # the time of the line before
                    at = self._anchored_at
                anchor = Anchor(
                    self._session_text, chain.id, chain.count, chain.hash, self._size, at
                )
                anchor = sign_anchor(anchor, self._hasher)
                if self._shared is None:
                    self._anchors.put(anchor)
                else:
                    self._put_lines(self._shared, anchor)
                self._anchored_count, self._anchored_at = chain.count, at
        except SessionBusyError:
            self._on_lost(self.session)
            raise
        finally:  # after a timeout, do not wait for the store again at once
            self._anchor_due = self._monotonic() + _ANCHOR_INTERVAL

    def anchor_rest(self) -> None:
        """Save an anchor if there are lines without one. Raises `StoreError`.

        Not for a file that has lost its path: the next event says so.
        """
        if self._chain.count > self._anchored_count and not self._find_loss():
            self.anchor()

    def _put_lines(self, shared: SharedAnchorStore, anchor: Anchor) -> None:
        """Save an anchor with the lines that the store does not have yet."""
        start = self._shared_size
        try:
            lines = os.pread(self._descriptor, anchor.size - start, start)
        except OSError as error:
            raise StoreError(self.path, f"cannot be read: {error.strerror}", "check it") from None
        shared.put_lines(anchor, start, lines, place_of(self.path.parent))
        self._shared_size = start + len(lines)

    def close(self) -> None:
        """Close and unlock the file, without anchoring it."""
        self._finalizer()

    def _add_note(self, note: Repaired) -> None:
        """Note a repair. Without a note it is not made, so this is no `StoreError`."""
        try:
            self._anchors.add_note(note)
        except StoreError as error:
            reason = f"its end is to be repaired, which cannot be noted: {error.reason}"
            raise JournalError(self.path, reason, error.remedy) from None

    def _check_file(self) -> None:
        """Check that the file still has its path: writes to a removed file are lost."""
        reason = self._find_loss()
        if not reason:
            return
        self._on_failure(self)
        raise JournalError(
            self.path,
            f"{reason}: it was removed or replaced while being written",
            "put it back, or use another session id",
        )

    def _find_loss(self) -> str:
        """Return why the file does not have its path any more; empty if it has."""
        try:
            if os.path.samestat(self.path.stat(), os.fstat(self._descriptor)):
                return ""
        except OSError as error:
            return f"is gone ({error.strerror})"
        return "is another file now"

    def _truncate(self) -> None:
        """Cut an unfinished line; if that fails, the next opening repairs it."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            return


def has_all_anchors(anchors: AnchorStore, anchor: Anchor | None, hasher: Hasher) -> bool:
    """Whether a session without an anchor never had one: needs a key, and no eviction."""
    return anchor is None and bool(hasher.key_id) and not anchors.count_evicted()


def _has_unsigned_anchor(descriptor: int, anchor: Anchor | None, hasher: Hasher) -> bool:
    if anchor is None or not hasher.key_id or anchor.mac:
        return False
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return is_unsigned(anchor, hasher, first_key_id(file.readline()))


def _open(path: Path) -> tuple[int, bool]:
    """Open and lock the file; also return whether it is new."""
    while True:
        try:
            created = not path.exists()
            descriptor = os.open(path, _FLAGS, FILE_MODE)
        except OSError as error:
            raise _write_error(path, error) from None
        try:
            _lock(descriptor, path)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor, created
        except FileNotFoundError:
            pass  # removed between opening and locking
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    require_regular(descriptor, path)
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_RETRY_SECONDS)
        except OSError as error:
            raise _write_error(path, error) from None
        else:
            return
    raise JournalError(
        path,
        "is being written by another process or guard",
        "end the session there, or use another session id",
    )


def _sync_folder(folder: Path) -> None:
    """Sync the folder: a new file is on disk only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REMEDIES: dict[int | None, str] = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EFBIG: "lift the limit on the size of files",
    errno.EROFS: "use a folder on a disk that you can write to",
    errno.EACCES: "check that you can write to the folder and the file",
    errno.EPERM: "check that you can write to the folder and the file",
    errno.ENOENT: "check that the folder still exists",
    errno.ELOOP: "it is a symbolic link: find out who made it, and remove it",
    errno.EMFILE: "allow more open files, or keep fewer sessions open",
}


def _write_error(path: Path, error: OSError) -> JournalError:
    remedy = _REMEDIES.get(error.errno, "check the disk")
    return JournalError(path, f"cannot be written: {error.strerror or error}", remedy)
