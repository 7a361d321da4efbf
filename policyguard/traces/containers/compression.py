"""gzip and zstd, a piece at a time: no piece is larger than what is said here."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import zstandard

from policyguard.traces.containers.expansion_limit import StreamMeter
from policyguard.traces.item import UnreadableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1 << 16
"""Bytes that are taken in, or given out, at once."""

_ZSTD_INPUT_BYTES = 1 << 10
"""Bytes of zstd that are expanded at once. Four bytes of it can stand for 128 KiB, and the library
gives out all of them together: at most 32 MiB so."""

_ZSTD_MAX_WINDOW = 1 << 27
"""The memory that a zstd file may ask for: bytes. What `zstd --long` writes needs as much."""

TRUNCATED = "the compressed data ends too early"

Chunks = Iterator[bytes]


def decompress_gzip(compressed: BinaryIO) -> Chunks:
    """The content of a gzip file of one or more members. Raises `UnreadableError`, `OSError`."""
    decoder, rest = None, b""
    while data := rest or compressed.read(CHUNK_BYTES):
        if decoder is None:
            # Tapes and some tools pad a gzip file with zeros.
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
        while piece := _inflate(decoder, b""):
            yield piece
        raise UnreadableError(TRUNCATED)


def _inflate(decoder: zlib._Decompress, data: bytes) -> bytes:
    try:
        return decoder.decompress(data, CHUNK_BYTES)
    except zlib.error:
        raise UnreadableError("broken gzip data") from None


def decompress_zstd(compressed: BinaryIO) -> Chunks:
    """The content of a zstd file of one or more frames. Raises `UnreadableError`, `OSError`."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    decoder, rest = None, b""
    while data := rest or compressed.read(_ZSTD_INPUT_BYTES):
        if decoder is None:
            decoder = decompressor.decompressobj()
        try:
            piece = decoder.decompress(data)
        except zstandard.ZstdError:
            raise UnreadableError("broken zstd data") from None
        yield piece
        rest = decoder.unused_data if decoder.eof else b""
        if decoder.eof:
            decoder = None
    if decoder is not None:
        raise UnreadableError(TRUNCATED)


class _ChunkStream(io.RawIOBase):
    """Pieces as a stream, each counted before it is given out."""

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
            piece = next(self._chunks, None)
            if piece is None:
                return 0
            self._position += len(piece)
            if self._meter is not None:
                self._meter.advance_to(self._position)
            self._chunk = memoryview(piece)
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
    """The pieces as a file to read, which counts them on `meter`; `close` is called at its end."""
    return io.BufferedReader(_ChunkStream(chunks, meter, close), CHUNK_BYTES)
