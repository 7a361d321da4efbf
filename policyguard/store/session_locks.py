"""Who a session belongs to: a lock that dies with its process.

One empty file serves all sessions: each locks a byte of its own (POSIX `fcntl` locks), at a place
that is a hash of its name. Nothing is written, so nothing grows, and nothing is left behind by a
process that was killed. What surprises in these locks, and is met here: they belong to the
process, so they neither hold between its threads nor pass to a forked child (`_Held` keeps the
books), and closing any descriptor of the file drops them all (so it is opened once a process).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import msgspec

from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.paths import FILE_MODE, ensure_private_folder, require_regular_file

_MAX_OFFSET = 2**62
"""Offsets that a session's lock may have; two meet on one with a chance of 1 in 2^62. Those of
holders come after them."""


class LockFile:
    """The sessions that this process holds under one file, and the numbers that it goes by."""

    def __init__(self, file: Path) -> None:
        self._path = file

    def acquire(self, session: str, *, shared: bool = False) -> FileLock:
        """Take a session. Raises `SessionBusyError`, or `StoreError` where the file is no good."""
        with _locked_tables():
            held = _find_table(self._path)
            place = _offset_of(session)
            taken = bool(held.holders.get(place))
            if taken and not (shared and place in held.shared):
                raise _busy_error(self._path, session, "by another guard of this process")
            with _registered_lock(held, place) as lease:
                if not taken:
                    _lock_byte(held.descriptor, place, self._path, session, shared=shared)
                    if shared:
                        held.shared.add(place)
            return lease

    def acquire_process_lock(self, number: int) -> FileLock:
        """Go by a number (below 2^61, and nobody else's) until the process dies.

        Raises `StoreError` where the file is no good.
        """
        with _locked_tables():
            held = _find_table(self._path)
            place = _MAX_OFFSET + number
            with _registered_lock(held, place) as lease:
                _lock_byte(held.descriptor, place, self._path, f"#{number}", shared=False)
            return lease

    def is_process_alive(self, number: int) -> bool:
        """Whether the process that goes by a number is alive.

        To be asked by one process at a time: each would take the other's try for a sign of life.
        """
        with _locked_tables():
            held = _find_table(self._path)
            place = _MAX_OFFSET + number
            if held.holders.get(place):
                return True
            try:
                fcntl.lockf(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return True
                raise _lock_error(self._path, error) from None
            finally:
                fcntl.lockf(held.descriptor, fcntl.LOCK_UN, 1, place)
            return False


class FileLock:
    """One hold on a session. See `policyguard.store.protocol.Lease`.

    Given up too when nobody has it any more.
    """

    def __init__(self, held: _LockTable, place: int) -> None:
        self._process = os.getpid()
        self._is_open = True
        self.hold = _Hold(held, place, self._process)
        weakref.finalize(self, _drop, self.hold).atexit = False  # its locks end with the process

    @property
    def is_held(self) -> bool:
        """Whether it is held, by this very process."""
        return self._is_open and self._process == os.getpid()

    def release(self) -> None:
        """Give the session up."""
        self._is_open = False
        _dropped_holds.append(self.hold)
        with _locked_tables():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _LockTable:
    """The lock file of one store in this process: who holds each place, which are shared."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.holders: dict[int, set[_Hold]] = {}
        self.shared: set[int] = set()


class _Hold(msgspec.Struct, frozen=True, eq=False):
    """One hold: the file's books, the place, the process that has it. May be dropped twice."""

    table: _LockTable
    offset: int
    process: int


_tables_lock = threading.Lock()
_tables: dict[tuple[int, int], _LockTable] = {}
"""By device and inode, as one file may go by several names."""
_dropped_holds: deque[_Hold] = deque()
"""Holds that are to be given up."""


def _drop(hold: _Hold) -> None:
    """Give a hold up, or leave that to whoever has the books open.

    The garbage collector comes at any moment, and in any thread: also in the one that has them.
    """
    _dropped_holds.append(hold)
    taken: list[bool] = []
    try:
        # Taken and noted in one step of C's: no signal comes between.
        taken.extend(map(_tables_lock.acquire, (False,)))
        if taken[0]:
            _release_dropped()
    finally:
        if True in taken:
            _tables_lock.release()


@contextmanager
def _registered_lock(held: _LockTable, place: int) -> Iterator[FileLock]:
    """A lease on a place, given up where what is done inside to take it fails."""
    lease = FileLock(held, place)
    try:
        held.holders.setdefault(place, set()).add(lease.hold)
        yield lease
    except BaseException:
        _dropped_holds.append(lease.hold)
        raise


@contextmanager
def _locked_tables() -> Iterator[None]:
    """The books, open for one, with what was given up taken out of them before and after."""
    with _tables_lock:
        _release_dropped()
        try:
            yield
        finally:
            _release_dropped()


def _release_dropped() -> None:
    while _dropped_holds:
        hold = _dropped_holds[0]  # and gone only when all is done
        if hold.process == os.getpid():  # else a fork came in between: the lock was the parent's
            _release(hold.table, hold.offset, hold)
        _dropped_holds.popleft()


def _release(held: _LockTable, place: int, hold: _Hold) -> None:
    holders = held.holders.get(place)
    if holders is None:
        return
    holders.discard(hold)
    if not holders:
        fcntl.lockf(held.descriptor, fcntl.LOCK_UN, 1, place)
        held.shared.discard(place)
        del held.holders[place]


def _after_fork() -> None:
    """The locks are the parent's; to close its descriptors here drops nothing of them."""
    global _tables_lock
    _tables_lock = threading.Lock()
    for held in _tables.values():
        os.close(held.descriptor)
    _tables.clear()


os.register_at_fork(after_in_child=_after_fork)


def _find_table(file: Path) -> _LockTable:
    try:
        found = file.stat()
    except OSError:
        pass  # not there yet, or not to be reached: opening it will tell
    else:
        known = _tables.get((found.st_dev, found.st_ino))
        if known is not None:
            return known
    ensure_private_folder(file.parent)
    require_regular_file(file)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _lock_error(file, error) from None
    opened = os.fstat(descriptor)
    held = _tables[opened.st_dev, opened.st_ino] = _LockTable(descriptor)
    return held


def _lock_byte(descriptor: int, place: int, file: Path, session: str, *, shared: bool) -> None:
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1, place)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _busy_error(file, session, "by another process") from None
        raise _lock_error(file, error) from None


def _offset_of(session: str) -> int:
    name = session.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8]) % _MAX_OFFSET


def _busy_error(file: Path, session: str, whom: str) -> SessionBusyError:
    return SessionBusyError(
        file,
        f"session {session!r:.80} is held {whom}",
        "end it there, or use another session id",
    )


def _lock_error(file: Path, error: OSError) -> StoreError:
    return StoreError(
        file, f"cannot be locked: {error.strerror}", "name a store on a disk that you may write to"
    )
