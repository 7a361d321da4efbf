"""Tar archives, member by member, as they come: forward only, so that a packed one streams.

Python's own reader takes the text of a long name or of a pax header into memory however long it
claims to be, so that only its parser of single headers is used here.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from policyguard.traces.allowance import LONGEST_BYTES
from policyguard.traces.contents import is_hidden, member_path
from policyguard.traces.item import UnreadableError
from policyguard.traces.packed import PIECE

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = tarfile.BLOCKSIZE

_LONGEST_HEADER = 1 << 20
"""Bytes that a long name or a pax header may have."""

_NAMES = (tarfile.GNUTYPE_LONGNAME,)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_SPARSE = "GNU.sparse"
_OTHER_HEADERS = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)

ENDS_EARLY = "the tar archive ends too early"


def is_tar(head: bytes) -> bool:
    """Whether a file's first bytes are the header of a tar archive: its checksum tells."""
    try:
        _header(head[:BLOCK])
    except UnreadableError:
        return False
    return True


class TarMember:
    """One file of an archive, to be read before the next is asked for."""

    longest = LONGEST_BYTES

    def __init__(self, path: Path, archive: BinaryIO, size: int) -> None:
        self.path = path
        self.name = path.name
        self._archive = archive
        self._left = size
        self._passed = False
        self.seen = bytearray()

    def look(self) -> BinaryIO:
        """From the beginning; what is seen is kept, for an archive cannot be read backwards."""
        return io.BufferedReader(_Replayed(self, keep=True), PIECE)

    def open(self) -> BinaryIO:
        """From the beginning, for the last time."""
        return io.BufferedReader(_Replayed(self, keep=False), PIECE)

    def fetch(self, most: int) -> bytes:
        """The next bytes of the archive that are this member's."""
        if self._passed:
            raise UnreadableError("its archive was read on before it")
        data = self._archive.read(min(most, self._left))
        if not data and most and self._left:
            raise UnreadableError(ENDS_EARLY)
        self._left -= len(data)
        return data

    def leave(self) -> None:
        """Whatever has not been read is passed over."""
        left = self._left > 0
        while self._left:
            self.fetch(PIECE)
        self._passed = left


class _Replayed(io.RawIOBase):
    def __init__(self, member: TarMember, keep: bool) -> None:
        self._member = member
        self._keep = keep
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        seen = self._member.seen
        if self._position < len(seen):
            data = bytes(seen[self._position : self._position + len(view)])
        else:
            data = self._member.fetch(len(view))
            if self._keep:
                seen += data
        self._position += len(data)
        view[: len(data)] = data
        return len(data)


def members(archive: BinaryIO, path: Path) -> Iterator[TarMember]:
    """The regular files of an archive, hidden ones left out. Raises `UnreadableError`, `OSError`.

    Links, folders and devices are left out: what they stand for is elsewhere.
    """
    name, pax = "", dict[str, str]()
    while block := _exactly(archive, BLOCK, may_end=True):
        if block == bytes(BLOCK):
            return
        header = _header(block)
        if header.type in _NAMES:
            name = _text(_small(archive, header.size)).rstrip("\0")
            continue
        if header.type in _PAX:
            pax = _pax(_small(archive, header.size))
            continue
        if header.type in _OTHER_HEADERS:
            _skip(archive, header.size + -header.size % BLOCK)
            continue
        size = _size(pax, header)
        name = pax.get("path") or name or header.name
        if header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(_SPARSE) for key in pax):
            raise UnreadableError(f"member `{name}` is a sparse file: from it on nothing is read")
        if header.isreg():
            member = TarMember(member_path(path, name), archive, size)
            if not is_hidden(name):
                yield member
            member.leave()
            _skip(archive, -size % BLOCK)
        elif header.type not in tarfile.SUPPORTED_TYPES:
            _skip(archive, size + -size % BLOCK)
        name, pax = "", {}


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        raise UnreadableError("a broken tar archive") from None
    if header.size < 0:
        raise UnreadableError("a broken tar archive")
    return header


def _size(pax: dict[str, str], header: tarfile.TarInfo) -> int:
    told = pax.get("size", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 20 else header.size


def _small(archive: BinaryIO, size: int) -> bytes:
    if size > _LONGEST_HEADER:
        raise UnreadableError(f"a header of {size} bytes in a tar archive")
    data = _exactly(archive, size + -size % BLOCK)
    return data[:size]


def _pax(data: bytes) -> dict[str, str]:
    """The records of a pax header: `length key=value`, the length that of the whole record."""
    records: dict[str, str] = {}
    start = 0
    while start < len(data):
        digits, space, _ = data[start : start + 20].partition(b" ")
        if not space or not digits.isdigit() or int(digits) <= len(digits):
            break
        end = start + int(digits)
        key, _, value = data[start + len(digits) + 1 : end].rstrip(b"\n").partition(b"=")
        records[_text(key)] = _text(value)
        start = end
    return records


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _exactly(archive: BinaryIO, size: int, *, may_end: bool = False) -> bytes:
    data = archive.read(size)
    if len(data) < size and not (may_end and not data):
        raise UnreadableError(ENDS_EARLY)
    return data


def _skip(archive: BinaryIO, size: int) -> None:
    while size:
        data = archive.read(min(size, PIECE))
        if not data:
            raise UnreadableError(ENDS_EARLY)
        size -= len(data)
