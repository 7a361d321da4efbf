"""Zip archives with stored, deflate and zstd members; Python's own reader has no zstd."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from policyguard.traces.containers.compression import (
    CHUNK_BYTES,
    Chunks,
    decompress_zstd,
    open_stream,
)
from policyguard.traces.containers.content import Content, is_hidden, member_path, open_seekable
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES, ExpansionLimit, StreamMeter
from policyguard.traces.item import UnreadableError

_ZSTD = 93
_SUPPORTED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD)
_ENCRYPTED = 0x1
_LOCAL_HEADER = struct.Struct("<26xHH")
"""The end of a member's local header: the lengths of its name and extra field."""

_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
)
"""What Python's reader raises for a damaged archive, besides `OSError`."""


class ZipArchive:
    """A zip archive. Raises `UnreadableError`, `OSError`."""

    def __init__(self, content: Content, limit: ExpansionLimit) -> None:
        self.path = content.path
        self.name = content.name
        self._limit = limit
        self._file = open_seekable(content)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except _ZIP_ERRORS:
            self._file.close()
            raise UnreadableError("a broken zip archive") from None
        # Of several members with one name the last one counts, as in unpacking.
        infos = {info.filename: info for info in self._zip.infolist() if not info.is_dir()}
        self._infos = {name: info for name, info in infos.items() if not is_hidden(name)}
        self.names = tuple(self._infos)

    def close(self) -> None:
        """Close the archive and its file."""
        self._zip.close()
        self._file.close()

    def members(self) -> Iterator[ZipMember]:
        """Yield all members in the archive's order, without hidden ones."""
        for name in self.names:
            yield self.member(name)

    def member(self, name: str) -> ZipMember:
        """Return the member with one of `names`."""
        path = member_path(self.path, name)
        return ZipMember(self._file, self._zip, self._infos[name], path, StreamMeter(self._limit))


class ZipMember:
    """A file in an archive that must stay open while it is read."""

    max_bytes = BUFFER_BYTES

    def __init__(
        self,
        file: BinaryIO,
        archive: zipfile.ZipFile,
        info: zipfile.ZipInfo,
        path: Path,
        meter: StreamMeter,
    ) -> None:
        self.path = path
        self.name = path.name
        self._file = file
        self._archive = archive
        self._info = info
        self._meter = meter

    def open_preview(self) -> BinaryIO:
        """Open it from the start."""
        return open_stream(self._read_chunks(), self._meter)

    open = open_preview

    def _read_chunks(self) -> Chunks:
        if self._info.flag_bits & _ENCRYPTED:
            raise UnreadableError("encrypted")
        if self._info.compress_type not in _SUPPORTED_METHODS:
            method = self._info.compress_type
            raise UnreadableError(f"zip compression method {method} is not supported")
        try:
            yield from (self._read_zstd() if self._info.compress_type == _ZSTD else self._inflate())
        except _ZIP_ERRORS:
            raise UnreadableError("a broken member of a zip archive") from None

    def _inflate(self) -> Chunks:
        with self._archive.open(self._info) as member:
            while chunk := member.read(CHUNK_BYTES):
                yield chunk

    def _read_zstd(self) -> Chunks:
        checksum = 0
        self._file.seek(self._info.header_offset)
        name, extra = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        start = self._info.header_offset + _LOCAL_HEADER.size + name + extra
        for chunk in decompress_zstd(open_stream(self._read_slice(start))):
            checksum = zlib.crc32(chunk, checksum)
            yield chunk
        if checksum != self._info.CRC:
            raise zipfile.BadZipFile

    def _read_slice(self, start: int) -> Chunks:
        """Read the compressed bytes; other members may move the file's position."""
        end = start + self._info.compress_size
        while start < end:
            self._file.seek(start)
            chunk = self._file.read(min(CHUNK_BYTES, end - start))
            if not chunk:
                return
            start += len(chunk)
            yield chunk
