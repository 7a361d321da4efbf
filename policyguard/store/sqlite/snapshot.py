"""A private copy of a database that may only be read, on a read-only disk or by another account.

To read a database in WAL mode SQLite needs two files beside it, which it makes if they are missing.
Where it cannot, the database is read from a copy, with the log of what it lacks if there is one.
Reading the original as *immutable* would be wrong, since its owner may write it at any time.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from policyguard.store.errors import StoreError

_RETRY_SECONDS = 0.02
_TIMESTAMP_NS = 50_000_000
"""Two writes within this time may leave the same time of the file."""


@contextmanager
def copied_database(path: Path, timeout: float) -> Iterator[Path]:
    """Copy a database into a temporary folder, which is removed at the end; yield the copy's path.

    A connection to the copy, once it has read something, may be used after that. Raises
    `StoreError` if the database cannot be read, there is no room, or it is written all the time
    until `timeout` (seconds).
    """
    until = time.monotonic() + timeout
    try:
        with TemporaryDirectory(prefix="policyguard-") as folder:
            copy = Path(folder, path.name)
            while not _copy_unchanged(path, copy):
                if time.monotonic() > until:
                    raise StoreError(path, "is being written all the time", "try again later")
                time.sleep(_RETRY_SECONDS)
            yield copy
    except OSError as error:
        raise StoreError(
            path,
            f"cannot be copied in order to read it ({error.strerror})",
            "check that you can read it and its folder, and that the temporary folder has room",
        ) from None


def _copy_unchanged(path: Path, copy: Path) -> bool:
    """Copy a database and its log. Return whether the database did not change meanwhile.

    Pages that move from the log to the database change the database. Lines added to the log do
    no harm: each has a checksum, and unfinished transactions are ignored.
    """
    before = path.stat()
    _copy_log(path, copy)
    shutil.copyfile(path, copy)
    after = path.stat()
    is_older = abs(time.time_ns() - after.st_mtime_ns) > _TIMESTAMP_NS
    return is_older and _identify(before) == _identify(after)


def _copy_log(path: Path, copy: Path) -> None:
    log = copy.with_name(f"{copy.name}-wal")
    try:
        shutil.copyfile(path.with_name(f"{path.name}-wal"), log)
    except FileNotFoundError:
        with suppress(FileNotFoundError):  # of an earlier attempt
            log.unlink()


def _identify(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
