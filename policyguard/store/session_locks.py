"""Session locks that end with their process.

All sessions share one empty file; each locks its own byte (a POSIX `fcntl` lock) at an offset
hashed from its id. Nothing is written, so the file does not grow, and a killed process leaves
nothing behind. Such locks belong to the process, with two surprises: they neither separate threads
nor pass to a forked child (`_LockTable` tracks the holders), and closing any descriptor of the file
drops them all (so each process opens it once).
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec

from policyguard.engines.operating_system import O_CLOEXEC, after_fork_in_child
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.paths import FILE_MODE, ensure_private_folder, require_regular_file

with suppress(ImportError):  # Windows, where stores in files and journals are refused
    import fcntl

_MAX_OFFSET = 2**62
"""The bound of session offsets; two collide with probability 2^-62. Process locks follow."""

_REMEDY = "close it there, or use another session id"
_REMEDY_OF_SERVICES = f"{_REMEDY}; each policy has a service of its own, which holds its sessions"


class LockFile:
    """A lock file, for sessions and for the processes that hold quota leases."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self, session: str) -> FileLock:
        """Lock a session. Raises `SessionBusyError`; `StoreError` if the file is unusable."""
        name = session.encode("utf-8", "surrogatepass")
        offset = int.from_bytes(hashlib.sha256(name).digest()[:8]) % _MAX_OFFSET
        with _locked_tables():
            table = _find_table(self._path)
            if offset in table.holds:
                holder = "by another guard of this process"
                raise self._busy_error(session, holder, _REMEDY)
            return self._lock_byte(table, offset, session)

    def acquire_process_lock(self, number: int) -> FileLock:
        """Lock a unique number below 2^61 as a sign that this process is alive.

        Raises `StoreError` if the file is unusable.
        """
        with _locked_tables():
            return self._lock_byte(_find_table(self._path), _MAX_OFFSET + number, f"#{number}")

    def is_process_alive(self, number: int) -> bool:
        """Return whether the process with this number is alive.

        One process may ask at a time: two would take each other's attempts for a sign of life.
        """
        with _locked_tables():
            table = _find_table(self._path)
            offset = _MAX_OFFSET + number
            if offset in table.holds:
                return True
            try:
                fcntl.lockf(table.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return True
                raise _lock_error(self._path, error) from None
            finally:
                fcntl.lockf(table.descriptor, fcntl.LOCK_UN, 1, offset)
            return False

    def has_locks(self) -> bool:
        """Whether any process holds a lock."""
        with _locked_tables():
            table = _find_table(self._path)
            if table.holds:
                return True  # of this process: to try would release them
            try:
                fcntl.lockf(table.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return True
                raise _lock_error(self._path, error) from None
            fcntl.lockf(table.descriptor, fcntl.LOCK_UN)
            return False

    def _lock_byte(self, table: _LockTable, offset: int, session: str) -> FileLock:
        """Lock a byte. An error or signal on the way leaves it to be released."""
        lock = FileLock(table, offset)
        try:
            table.holds[offset] = lock.hold
            fcntl.lockf(table.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except BaseException as error:
            _dropped_holds.append(lock.hold)
            if not isinstance(error, OSError):
                raise
            if error.errno in (errno.EACCES, errno.EAGAIN):
                holder = "by another process"
                raise self._busy_error(session, holder, _REMEDY_OF_SERVICES) from None
            raise _lock_error(self._path, error) from None
        return lock

    def _busy_error(self, session: str, holder: str, remedy: str) -> SessionBusyError:
        return SessionBusyError(
            self._path,
            f"session {session!r:.80} is held {holder}",
            remedy,
        )


class FileLock:
    """A held lock: see `policyguard.store.protocol.SessionLock`. Garbage collection releases it."""

    def __init__(self, table: _LockTable, offset: int) -> None:
        self._process = os.getpid()
        self._is_open = True
        self.hold = _Hold(table, offset, self._process)
        weakref.finalize(self, _drop, self.hold).atexit = False  # its locks end with the process

    @property
    def is_held(self) -> bool:
        return self._is_open and self._process == os.getpid()

    def release(self) -> None:
        self._is_open = False
        _dropped_holds.append(self.hold)
        with _locked_tables():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _LockTable:
    """An open lock file and what this process holds of it, by offset."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.holds: dict[int, _Hold] = {}


class _Hold(msgspec.Struct, frozen=True, eq=False):
    """One process's hold on an offset. It may be dropped twice."""

    table: _LockTable
    offset: int
    process: int


_tables_lock = threading.Lock()
_tables: dict[tuple[int, int], _LockTable] = {}
"""By device and inode, since a file may have several names."""
_dropped_holds: deque[_Hold] = deque()
"""The holds to release."""


def _drop(hold: _Hold) -> None:
    """Release a hold, or leave it to the thread that has the tables.

    The garbage collector calls this at any moment and in any thread, even in that one.
    """
    _dropped_holds.append(hold)
    acquired: list[bool] = []
    try:
        # Acquired and noted in one C step, so that no signal comes between.
        acquired.extend(map(_tables_lock.acquire, (False,)))
        if acquired[0]:
            _release_dropped()
    finally:
        if True in acquired:
            _tables_lock.release()


@contextmanager
def _locked_tables() -> Iterator[None]:
    """Lock the tables; release dropped holds before and after."""
    with _tables_lock:
        _release_dropped()
        try:
            yield
        finally:
            _release_dropped()


def _release_dropped() -> None:
    while _dropped_holds:
        hold = _dropped_holds[0]  # removed only when all is done
        holds = hold.table.holds
        # After a fork the lock is the parent's.
        if hold.process == os.getpid() and holds.get(hold.offset) is hold:
            fcntl.lockf(hold.table.descriptor, fcntl.LOCK_UN, 1, hold.offset)
            del holds[hold.offset]
        _dropped_holds.popleft()


def _after_fork() -> None:
    """Forget the parent's locks; closing its descriptors here drops none of them."""
    global _tables_lock
    _tables_lock = threading.Lock()
    for table in _tables.values():
        os.close(table.descriptor)
    _tables.clear()


after_fork_in_child(_after_fork)


def _find_table(file: Path) -> _LockTable:
    try:
        status = file.stat()
    except OSError:
        pass  # missing or unreachable: opening it raises
    else:
        table = _tables.get((status.st_dev, status.st_ino))
        if table is not None:
            return table
    ensure_private_folder(file.parent)
    require_regular_file(file)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _lock_error(file, error) from None
    status = os.fstat(descriptor)
    table = _tables[status.st_dev, status.st_ino] = _LockTable(descriptor)
    return table


def _lock_error(file: Path, error: OSError) -> StoreError:
    return StoreError(
        file, f"cannot be locked: {error.strerror}", "use a store on a disk that you can write to"
    )
