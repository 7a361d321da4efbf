"""Copies journals elsewhere: to another folder, or to an object store.

Only journals that verify are copied. What is at the target is kept: a copy that is a beginning of
the journal is replaced by the longer one, anything else is an error and stays. Each copy is read
back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

import msgspec

from policyguard.journal.errors import JournalError
from policyguard.journal.folder import is_journal_name
from policyguard.journal.verify import VerifyResult

_CHUNK_BYTES = 1 << 20


class ShipTarget(Protocol):
    """Where journals are copied to."""

    def open(self, name: str) -> IO[bytes] | None:
        """Open a copy for reading; None if there is none. Raises `OSError`."""

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write a copy, whole or not at all. Raises `OSError`."""


class ShipResult(msgspec.Struct, frozen=True):
    """The names that were copied, how many were there already, and what was not copied, and why."""

    shipped: tuple[str, ...]
    unchanged: int
    failures: tuple[str, ...]


def ship(
    folders: Sequence[Path],
    target: ShipTarget,
    verify_file: Callable[[Path], VerifyResult],
    on_shipped: Callable[[str], None] = lambda name: None,
) -> ShipResult:
    """Copy the journals of folders. Raises `JournalError` for a folder that cannot be listed."""
    shipped: list[str] = []
    failures: list[str] = []
    unchanged = 0
    for folder in folders:
        try:
            files = sorted(file for file in folder.iterdir() if is_journal_name(file))
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            raise JournalError(folder, reason, "name a folder of journals") from None
        for file in files:
            try:
                if _ship_file(file, target, verify_file):
                    shipped.append(file.name)
                    on_shipped(file.name)
                else:
                    unchanged += 1
            except (OSError, JournalError) as error:
                is_own = isinstance(error, JournalError)
                failures.append(str(error) if is_own else f"{file}: {error}")
    return ShipResult(tuple(shipped), unchanged, tuple(failures))


def _ship_file(file: Path, target: ShipTarget, verify_file: Callable[[Path], VerifyResult]) -> bool:
    """Copy one journal; return False if the copy has all its lines already."""
    size = _whole_lines(file)  # it may be written meanwhile: what is verified is more
    found = [one for one in verify_file(file).findings if one.severity == "error"]
    if found:
        reason = f"does not verify: {found[0].message}"
        raise JournalError(file, reason, "see `policyguard journal verify`; it is not copied")
    if _common_size(file, target, size) == size:
        return False
    digest = hashlib.sha256()

    def read() -> Iterator[bytes]:
        for chunk in _chunks(file, size):
            digest.update(chunk)
            yield chunk

    target.write(file.name, read())
    if _digest_of(target, file.name) != digest.digest():
        raise JournalError(file, "its copy is not what was written", "look at the target")
    return True


def _whole_lines(file: Path) -> int:
    """Return how many bytes of a journal are whole lines."""
    end = 0
    with file.open("rb") as opened:
        for line in opened:
            if line.endswith(b"\n"):
                end += len(line)
    return end


def _common_size(file: Path, target: ShipTarget, size: int) -> int | None:
    """Return how many bytes of a journal its copy has; None without a copy.

    Raises `JournalError` for another file.
    """
    copy = target.open(file.name)
    if copy is None:
        return None
    common = 0
    with copy, file.open("rb") as own:
        while chunk := copy.read(_CHUNK_BYTES):
            if own.read(len(chunk)) != chunk:
                reason = f"differs from its copy beyond byte {common}"
                raise JournalError(file, reason, "find out which of the two was changed")
            common += len(chunk)
    return min(common, size)  # the copy may be of a later moment


def _chunks(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while size > 0 and (chunk := opened.read(min(size, _CHUNK_BYTES))):
            size -= len(chunk)
            yield chunk


def _digest_of(target: ShipTarget, name: str) -> bytes:
    digest = hashlib.sha256()
    copy = target.open(name)
    if copy is not None:
        with copy:
            while chunk := copy.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.digest()
