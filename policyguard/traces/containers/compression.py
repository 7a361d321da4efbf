"""Decompression of gzip, zstd and xz in chunks of bounded size."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from policyguard.traces.containers.expansion_limit import StreamMeter
from policyguard.traces.item import UnreadableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1 << 16
"""Bytes read or written at once."""

_ZSTD_INPUT_BYTES = 1 << 10
"""Bytes of zstd data decompressed at once. Four bytes can expand to 128 KiB, and the library
returns all of it together: at most 32 MiB."""

_ZSTD_MAX_WINDOW = 1 << 27
"""Bytes of memory that a zstd file may require; `zstd --long` needs this much."""

_XZ_MAX_MEMORY = 1 << 27
"""Bytes of memory that an xz file may require; `xz -9` needs half of this."""

TRUNCATED = "the compressed data is truncated"

Chunks = Iterator[bytes]


def decompress_gzip(compressed: BinaryIO) -> Chunks:
    """Yield the content of a gzip file with any number of members.

    Raises `UnreadableError`, `OSError`.
    """
    decoder, rest = None, b""
    while data := rest or compressed.read(CHUNK_BYTES):
        if decoder is None:
            # Tapes and some tools pad gzip files with zeros.
            data = data.lstrip(b"\0")
            if not data:
                rest = b""
                continue
            decoder = zlib.decompressobj(wbits=31)
        yield _inflate(decoder, data)
        rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
        if decoder.eof:
            decoder = None
    if decoder is not None:
        while chunk := _inflate(decoder, b""):
            yield chunk
        raise UnreadableError(TRUNCATED)


def _inflate(decoder: zlib._Decompress, data: bytes) -> bytes:
    try:
        return decoder.decompress(data, CHUNK_BYTES)
    except zlib.error:
        raise UnreadableError("broken gzip data") from None


def decompress_zstd(compressed: BinaryIO) -> Chunks:
    """Yield the content of a zstd file with any number of frames.

    Raises `UnreadableError`, also where the extra `zstd` is not installed, and `OSError`.
    """
    try:
        import zstandard
    except ImportError:
        raise UnreadableError(
            "zstd data needs the package zstandard: pip install 'policyguard-engine[zstd]'"
        ) from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    decoder, rest = None, b""
    while data := rest or compressed.read(_ZSTD_INPUT_BYTES):
        if decoder is None:
            decoder = decompressor.decompressobj()
        try:
            chunk = decoder.decompress(data)
        except zstandard.ZstdError:
            raise UnreadableError("broken zstd data") from None
        yield chunk
        rest = decoder.unused_data if decoder.eof else b""
        if decoder.eof:
            decoder = None
    if decoder is not None:
        raise UnreadableError(TRUNCATED)


def decompress_xz(compressed: BinaryIO) -> Chunks:
    """Yield the content of an xz file with any number of streams.

    Raises `UnreadableError`, also where Python was built without `lzma`, and `OSError`.
    """
    try:
        import lzma
    except ImportError:
        raise UnreadableError("xz data needs a Python with the module `lzma`") from None
    decoder, rest = None, b""
    while data := rest or compressed.read(CHUNK_BYTES):
        if decoder is None:
            data = data.lstrip(b"\0")  # padding between streams
            if not data:
                rest = b""
                continue
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MAX_MEMORY)
        try:
            yield decoder.decompress(data, CHUNK_BYTES)
            while not (decoder.eof or decoder.needs_input):
                yield decoder.decompress(b"", CHUNK_BYTES)
        except lzma.LZMAError:
            raise UnreadableError("broken xz data, or its dictionary is too large") from None
        rest = decoder.unused_data if decoder.eof else b""
        if decoder.eof:
            decoder = None
    if decoder is not None:
        raise UnreadableError(TRUNCATED)


class _ChunkStream(io.RawIOBase):
    """A stream over chunks that counts each chunk before it returns it."""

    def __init__(
        self, chunks: Chunks, meter: StreamMeter | None, close: Callable[[], None]
    ) -> None:
        self._chunks = chunks
        self._meter = meter
        self._close = close
        self._chunk = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._position += len(chunk)
            if self._meter is not None:
                self._meter.advance_to(self._position)
            self._chunk = memoryview(chunk)
        size = min(len(view), len(self._chunk))
        view[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


def open_stream(
    chunks: Chunks, meter: StreamMeter | None = None, close: Callable[[], None] = lambda: None
) -> BinaryIO:
    """Return a readable file over the chunks, counted by `meter`; closing it calls `close`."""
    return io.BufferedReader(_ChunkStream(chunks, meter, close), CHUNK_BYTES)
