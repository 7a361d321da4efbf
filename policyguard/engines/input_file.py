"""Open files that a user named: a pipe without a writer, or a device, is refused at once."""

from __future__ import annotations

import os
import stat
from errno import EINVAL
from os import PathLike
from typing import BinaryIO

from policyguard.engines.operating_system import O_NONBLOCK

_OWN_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_NOT_REGULAR = "not a regular file"


def open_input(path: str | PathLike[str]) -> BinaryIO:
    """Open a regular file, or a stream that this process has, as of `<(…)` or `/dev/stdin`.

    Raises `OSError` with a `strerror`, for a folder and for all that is not a regular file, too.
    """
    name = os.fspath(path)
    if is_own_stream(name):
        return open(name, "rb")  # noqa: PTH123 - as below
    require_regular(name)  # before it is opened, which some devices notice
    file = open(name, "rb", opener=_open_at_once)  # noqa: SIM115 - a path has no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # put there meanwhile
        file.close()
        raise OSError(EINVAL, _NOT_REGULAR, name)
    return file


def is_own_stream(name: str | PathLike[str]) -> bool:
    """Return whether a path names a stream that this process has open."""
    return os.fspath(name).startswith(_OWN_STREAMS)


def require_regular(path: str | PathLike[str]) -> None:
    """Raise `OSError` for a pipe, socket or device. A folder is left to what opens it."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - texts, too
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(EINVAL, _NOT_REGULAR, os.fspath(path))


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | O_NONBLOCK)  # a pipe would wait for its writer
