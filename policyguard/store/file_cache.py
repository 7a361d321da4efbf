"""Files that can be made again, in the user's cache folder: private, bounded, and never an error.

Whatever is wrong with the folder or with a file in it (full, read-only, somebody else's, a link,
damaged) is as if nothing had been kept. It is always safe to delete.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from policyguard.store.errors import StoreError
from policyguard.store.paths import FILE_MODE, ensure_private_folder

CACHE_VARIABLE = "POLICYGUARD_CACHE"

_MAX_FILE_BYTES = 8 * 1024 * 1024
"""Bytes of one file."""
_MAX_BYTES = 64 * 1024 * 1024
_MAX_FILES = 256
_TOUCH_SECONDS = 3600
"""Seconds after which it is noted anew that a file is in use."""
_NAME = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?")
"""A file, or one that is being written. Whatever else lies in the folder is left alone."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path | None:
    """Where files are kept: `$POLICYGUARD_CACHE`, by default in `$XDG_CACHE_HOME` or `~/.cache`.

    None, nowhere, where the variable says `off`, or anything else that is no absolute path.
    """
    told = os.environ.get(CACHE_VARIABLE, "")
    if told:
        return Path(told) if os.path.isabs(told) else None  # noqa: PTH117 - a text, so far
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (home if home.is_absolute() else Path.home() / ".cache") / "policyguard"
    except RuntimeError:  # nobody has told where home is
        return None


class FileCache:
    """The files in one folder, by name: 64 hexadecimal digits.

    A name is given anew whenever what would be in the file changes. Safe to use from many
    processes: a file is there as a whole or not at all.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def get(self, name: str) -> bytes | None:
        """What was kept under a name; None where nothing was, or not by `put`."""
        with suppress(OSError), self._open_folder() as folder:
            data = _read(name, folder)
            if data[:_DIGEST_BYTES] == _digest(name, data[_DIGEST_BYTES:]):
                return data[_DIGEST_BYTES:]
        return None

    def put(self, name: str, data: bytes) -> None:
        """Keep `data`, if that can be done; what has not been used for longest goes."""
        if len(data) > _MAX_FILE_BYTES - _DIGEST_BYTES:
            return
        with suppress(OSError, StoreError):
            ensure_private_folder(self._path)
            with self._open_folder() as folder:
                _write(name, _digest(name, data) + data, folder)
                _prune(folder)

    @contextmanager
    def _open_folder(self) -> Iterator[int]:
        """The folder itself, opened: nobody can put another one in its place meanwhile."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._path, flags)
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
                raise PermissionError
            yield handle
        finally:
            os.close(handle)


def _digest(name: str, data: bytes) -> bytes:
    """Tells damage, and a file under another's name. It is no proof of who has written it."""
    return hashlib.sha256(name.encode() + data).digest()


def _read(name: str, folder: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:  # noqa: PTH123 - a handle
        found = os.fstat(file.fileno())
        private = found.st_uid == os.geteuid() and not found.st_mode & _WRITABLE_BY_OTHERS
        if not (stat.S_ISREG(found.st_mode) and private and found.st_size <= _MAX_FILE_BYTES):
            return b""
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(file.fileno())
        return file.read(_MAX_FILE_BYTES)


def _write(name: str, data: bytes, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    written = f"{name}.{os.urandom(8).hex()}"
    handle = os.open(written, flags, FILE_MODE, dir_fd=folder)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle
            file.write(data)
        os.replace(written, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(written, dir_fd=folder)
        raise


def _prune(folder: int) -> None:
    """Remove the least recently used files until all are within the bounds."""
    with os.scandir(folder) as entries:
        files = [(entry.stat(follow_symlinks=False), entry.name) for entry in entries]
    files = [(found, name) for found, name in files if _NAME.fullmatch(name)]
    files.sort(key=lambda file: -file[0].st_mtime_ns)
    size = 0
    for place, (found, name) in enumerate(files):
        size += found.st_size
        if place >= _MAX_FILES or size > _MAX_BYTES:
            with suppress(FileNotFoundError):  # another process was faster
                os.unlink(name, dir_fd=folder)
