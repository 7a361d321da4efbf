"""Tar archives, read forward only, so that compressed ones stream.

Python's own reader loads long names and pax headers of any claimed size into memory; this module
therefore uses only its parser for single headers.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from policyguard.traces.containers.compression import CHUNK_BYTES, Chunks, open_stream
from policyguard.traces.containers.content import is_hidden, member_path
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES
from policyguard.traces.item import UnreadableError

BLOCK_BYTES = tarfile.BLOCKSIZE

_MAX_HEADER_BYTES = 1 << 20
"""Bytes of a long name or a pax header."""

_LONG_NAME_TYPES = (tarfile.GNUTYPE_LONGNAME,)
_PAX_TYPES = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_SPARSE = "GNU.sparse"
_IGNORED_HEADER_TYPES = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)

TRUNCATED = "the tar archive is truncated"


def is_tar(head: bytes) -> bool:
    """Return whether a file begins with a tar header, by the header's checksum."""
    try:
        _parse_header(head[:BLOCK_BYTES])
    except UnreadableError:
        return False
    return True


class TarMember:
    """A file in an archive; it must be read before the next one."""

    max_bytes = BUFFER_BYTES

    def __init__(self, path: Path, archive: BinaryIO, size: int) -> None:
        self.path = path
        self.name = path.name
        self._archive = archive
        self._remaining = size
        self._is_past = False
        self._preview = bytearray()

    def open_preview(self) -> BinaryIO:
        """Open it from the start; what is read is kept, as the archive cannot be rewound."""
        return open_stream(self._read_chunks(keeps_preview=True))

    def open(self) -> BinaryIO:
        """Open it from the start, once."""
        return open_stream(self._read_chunks(keeps_preview=False))

    def _read_chunks(self, *, keeps_preview: bool) -> Chunks:
        position = 0
        while chunk := bytes(self._preview[position : position + CHUNK_BYTES]) or self._read_next():
            if keeps_preview and position == len(self._preview):
                self._preview += chunk
            position += len(chunk)
            yield chunk

    def _read_next(self) -> bytes:
        if self._is_past:
            raise UnreadableError("its archive was read past it")
        data = self._archive.read(min(CHUNK_BYTES, self._remaining))
        if not data and self._remaining:
            raise UnreadableError(TRUNCATED)
        self._remaining -= len(data)
        return data

    def skip_rest(self) -> None:
        """Skip the rest of the member."""
        is_unread = self._remaining > 0
        while self._remaining:
            self._read_next()
        self._is_past = is_unread


def iter_members(archive: BinaryIO, path: Path) -> Iterator[TarMember]:
    """Yield the regular files of an archive, without hidden ones.

    Raises `UnreadableError`, `OSError`.
    """
    name, pax = "", dict[str, str]()
    while block := _read_exactly(archive, BLOCK_BYTES, allow_end=True):
        if block == bytes(BLOCK_BYTES):
            return
        header = _parse_header(block)
        if header.type in _LONG_NAME_TYPES:
            name = _decode_text(_read_header_data(archive, header.size)).rstrip("\0")
            continue
        if header.type in _PAX_TYPES:
            pax = _parse_pax(_read_header_data(archive, header.size))
            continue
        if header.type in _IGNORED_HEADER_TYPES:
            _skip_bytes(archive, header.size + -header.size % BLOCK_BYTES)
            continue
        size = _member_size(pax, header)
        name = pax.get("path") or name or header.name
        if header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(_SPARSE) for key in pax):
            raise UnreadableError(f"member `{name}` is a sparse file: reading stops here")
        if header.isreg():
            member = TarMember(member_path(path, name), archive, size)
            if not is_hidden(name):
                yield member
            member.skip_rest()
            _skip_bytes(archive, -size % BLOCK_BYTES)
        elif header.type not in tarfile.SUPPORTED_TYPES:
            _skip_bytes(archive, size + -size % BLOCK_BYTES)
        name, pax = "", {}


def _parse_header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        raise UnreadableError("a broken tar archive") from None
    if header.size < 0:
        raise UnreadableError("a broken tar archive")
    return header


def _member_size(pax: dict[str, str], header: tarfile.TarInfo) -> int:
    size = pax.get("size", "")
    return int(size) if size.isascii() and size.isdigit() and len(size) < 20 else header.size


def _read_header_data(archive: BinaryIO, size: int) -> bytes:
    if size > _MAX_HEADER_BYTES:
        raise UnreadableError(f"a tar header of {size} bytes is too large")
    data = _read_exactly(archive, size + -size % BLOCK_BYTES)
    return data[:size]


def _parse_pax(data: bytes) -> dict[str, str]:
    """Parse a pax header: records `length key=value`, the length of the whole record first."""
    records: dict[str, str] = {}
    start = 0
    while start < len(data):
        digits, space, _ = data[start : start + 20].partition(b" ")
        if not space or not digits.isdigit() or int(digits) <= len(digits):
            break
        end = start + int(digits)
        key, _, value = data[start + len(digits) + 1 : end].rstrip(b"\n").partition(b"=")
        records[_decode_text(key)] = _decode_text(value)
        start = end
    return records


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _read_exactly(archive: BinaryIO, size: int, *, allow_end: bool = False) -> bytes:
    data = archive.read(size)
    if len(data) < size and not (allow_end and not data):
        raise UnreadableError(TRUNCATED)
    return data


def _skip_bytes(archive: BinaryIO, size: int) -> None:
    while size:
        data = archive.read(min(size, CHUNK_BYTES))
        if not data:
            raise UnreadableError(TRUNCATED)
        size -= len(data)
