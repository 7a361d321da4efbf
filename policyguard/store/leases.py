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
from policyguard.store.place import FILE_MODE, private_folder, regular_file

_PLACES = 2**62
"""Offsets that a session's lock may have; two meet on one with a chance of 1 in 2^62. Those of
holders come after them."""


class Leases:
    """The sessions that this process holds under one file, and the numbers that it goes by."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def take(self, session: str, *, shared: bool = False) -> SessionLease:
        """Take a session. Raises `SessionBusyError`, or `StoreError` where the file is no good."""
        with _settled():
            held = _held(self._file)
            place = _place(session)
            taken = bool(held.holders.get(place))
            if taken and not (shared and place in held.shared):
                raise _busy(self._file, session, "by another guard of this process")
            with _lease(held, place) as lease:
                if not taken:
                    _claim(held.descriptor, place, self._file, session, shared=shared)
                    if shared:
                        held.shared.add(place)
            return lease

    def hold(self, number: int) -> SessionLease:
        """Go by a number (below 2^61, and nobody else's) until the process dies.

        Raises `StoreError` where the file is no good.
        """
        with _settled():
            held = _held(self._file)
            place = _PLACES + number
            with _lease(held, place) as lease:
                _claim(held.descriptor, place, self._file, f"#{number}", shared=False)
            return lease

    def alive(self, number: int) -> bool:
        """Whether the process that goes by a number is alive.

        To be asked by one process at a time: each would take the other's try for a sign of life.
        """
        with _settled():
            held = _held(self._file)
            place = _PLACES + number
            if held.holders.get(place):
                return True
            try:
                fcntl.lockf(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return True
                raise _unusable(self._file, error) from None
            finally:
                fcntl.lockf(held.descriptor, fcntl.LOCK_UN, 1, place)
            return False


class SessionLease:
    """One hold on a session. See `policyguard.store.protocol.Lease`.

    Given up too when nobody has it any more.
    """

    def __init__(self, held: _Held, place: int) -> None:
        self._process = os.getpid()
        self._open = True
        self.hold = _Hold(held, place, self._process)
        weakref.finalize(self, _drop, self.hold).atexit = False  # its locks end with the process

    @property
    def held(self) -> bool:
        """Whether it is held, by this very process."""
        return self._open and self._process == os.getpid()

    def close(self) -> None:
        """Give the session up."""
        self._open = False
        _dropped.append(self.hold)
        with _settled():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Held:
    """The lock file of one store in this process: who holds each place, which are shared."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.holders: dict[int, set[_Hold]] = {}
        self.shared: set[int] = set()


class _Hold(msgspec.Struct, frozen=True, eq=False):
    """One hold: the file's books, the place, the process that has it. May be dropped twice."""

    held: _Held
    place: int
    process: int


_lock = threading.Lock()
_files: dict[tuple[int, int], _Held] = {}
"""By device and inode, as one file may go by several names."""
_dropped: deque[_Hold] = deque()
"""Holds that are to be given up."""


def _drop(hold: _Hold) -> None:
    """Give a hold up, or leave that to whoever has the books open.

    The garbage collector comes at any moment, and in any thread: also in the one that has them.
    """
    _dropped.append(hold)
    taken: list[bool] = []
    try:
        # Taken and noted in one step of C's: no signal comes between.
        taken.extend(map(_lock.acquire, (False,)))
        if taken[0]:
            _settle()
    finally:
        if True in taken:
            _lock.release()


@contextmanager
def _lease(held: _Held, place: int) -> Iterator[SessionLease]:
    """A lease on a place, given up where what is done inside to take it fails."""
    lease = SessionLease(held, place)
    try:
        held.holders.setdefault(place, set()).add(lease.hold)
        yield lease
    except BaseException:
        _dropped.append(lease.hold)
        raise


@contextmanager
def _settled() -> Iterator[None]:
    """The books, open for one, with what was given up taken out of them before and after."""
    with _lock:
        _settle()
        try:
            yield
        finally:
            _settle()


def _settle() -> None:
    while _dropped:
        hold = _dropped[0]  # and gone only when all is done
        if hold.process == os.getpid():  # else a fork came in between: the lock was the parent's
            _give_up(hold.held, hold.place, hold)
        _dropped.popleft()


def _give_up(held: _Held, place: int, hold: _Hold) -> None:
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
    global _lock
    _lock = threading.Lock()
    for held in _files.values():
        os.close(held.descriptor)
    _files.clear()


os.register_at_fork(after_in_child=_after_fork)


def _held(file: Path) -> _Held:
    try:
        found = file.stat()
    except OSError:
        pass  # not there yet, or not to be reached: opening it will tell
    else:
        known = _files.get((found.st_dev, found.st_ino))
        if known is not None:
            return known
    private_folder(file.parent)
    regular_file(file)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _unusable(file, error) from None
    opened = os.fstat(descriptor)
    held = _files[opened.st_dev, opened.st_ino] = _Held(descriptor)
    return held


def _claim(descriptor: int, place: int, file: Path, session: str, *, shared: bool) -> None:
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1, place)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _busy(file, session, "by another process") from None
        raise _unusable(file, error) from None


def _place(session: str) -> int:
    name = session.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8]) % _PLACES


def _busy(file: Path, session: str, whom: str) -> SessionBusyError:
    return SessionBusyError(
        file,
        f"session {session!r:.80} is held {whom}",
        "end it there, or use another session id",
    )


def _unusable(file: Path, error: OSError) -> StoreError:
    return StoreError(
        file, f"cannot be locked: {error.strerror}", "name a store on a disk that you may write to"
    )
