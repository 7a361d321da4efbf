"""A cache of reproducible files in a folder of the user: private, bounded, and never an error.

Any trouble with the folder or a file in it (full, read-only, another user's, a link, damaged) is a
cache miss. The folder is always safe to delete.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.operating_system import O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK
from policyguard.store.errors import StoreError
from policyguard.store.paths import (
    FILE_MODE,
    WRITABLE_BY_OTHERS,
    ensure_private_folder,
    state_folder,
)

CACHE_VARIABLE = "POLICYGUARD_CACHE"

_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_BYTES = 64 * 1024 * 1024
_MAX_FILES = 256
_TOUCH_SECONDS = 3600
"""The interval at which a file in use is marked as used."""
_NAME = lazy_pattern(r"[0-9a-f]{64}(\.[0-9a-f]{16})?")
"""A cached file, or one that is being written. Other files in the folder are left alone."""
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Return `$POLICYGUARD_CACHE`, by default `cache` beside the user's own store.

    Not the user's cache folder, which sandboxes let agents write. Return None, no cache, if the
    variable is `off` or anything else but an absolute path, and where the system cannot open files
    relative to a folder (Windows).
    """
    if os.open not in os.supports_dir_fd:
        return None
    setting = os.environ.get(CACHE_VARIABLE, "")
    if setting:
        return Path(setting) if os.path.isabs(setting) else None  # noqa: PTH117 - a string so far
    try:
        return state_folder() / "cache"
    except RuntimeError:  # the user has no home folder
        return None


class FileCache:
    """The files of one folder, by name: 64 hexadecimal digits.

    The caller uses a new name whenever the content would differ. Safe to use from many processes:
    a file is complete or absent.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def get(self, name: str) -> bytes | None:
        """Return the data under a name; None if `put` did not write it."""
        with suppress(OSError), self._open_folder() as folder:
            data = _read(name, folder)
            if data[:_DIGEST_BYTES] == _digest(name, data[_DIGEST_BYTES:]):
                return data[_DIGEST_BYTES:]
        return None

    def put(self, name: str, data: bytes) -> None:
        """Cache `data` if possible, evicting the least recently used files."""
        if len(data) > _MAX_FILE_BYTES - _DIGEST_BYTES:
            return
        with suppress(OSError, StoreError):
            ensure_private_folder(self._path)
            with self._open_folder() as folder:
                _write(name, _digest(name, data) + data, folder)
                _prune(folder)

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        """Open the folder, so that it cannot be swapped meanwhile."""
        flags = os.O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
        descriptor = os.open(self._path, flags)
        try:
            if not _is_private(os.fstat(descriptor)):
                raise PermissionError
            yield descriptor
        finally:
            os.close(descriptor)


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS


def _digest(name: str, data: bytes) -> bytes:
    """Return a digest that reveals damage or a renamed file. It does not prove who wrote it."""
    return hashlib.sha256(name.encode() + data).digest()


def _read(name: str, folder: int) -> bytes:
    flags = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        if not (regular and _is_private(status) and status.st_size <= _MAX_FILE_BYTES):
            return b""
        if time.time() - status.st_mtime > _TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(file.fileno())
        return file.read(_MAX_FILE_BYTES)


def _write(name: str, data: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW | O_CLOEXEC
    temporary = f"{name}.{os.urandom(8).hex()}"
    descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)


def _prune(folder: int) -> None:
    """Delete the least recently used files beyond the bounds."""
    with os.scandir(folder) as entries:
        files = [(entry.stat(follow_symlinks=False), entry.name) for entry in entries]
    files = [(status, name) for status, name in files if _NAME.fullmatch(name)]
    files.sort(key=lambda file: -file[0].st_mtime_ns)
    size = 0
    for index, (status, name) in enumerate(files):
        size += status.st_size
        if index >= _MAX_FILES or size > _MAX_BYTES:
            with suppress(FileNotFoundError):  # another process was faster
                os.unlink(name, dir_fd=folder)
