"""Bytes, wherever they lie: in a file, packed, or in an archive. Nothing is written to the disk."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from policyguard.traces.containers.compression import decompress_gzip, decompress_zstd, open_stream
from policyguard.traces.containers.expansion_limit import (
    MAX_BUFFERED_BYTES,
    ExpansionLimit,
    StreamMeter,
)
from policyguard.traces.item import UnreadableError

UNLIMITED = -1


class Content(Protocol):
    """Something that can be read from its beginning, twice: once to see what it is, once whole."""

    path: Path
    """Where it lies, as reports name it; a member's path goes on behind its archive's."""

    name: str
    """The file's name, without the ending that says how it is packed."""

    max_bytes: int
    """Bytes that may be held in memory at once, or `UNLIMITED`."""

    def open_preview(self) -> BinaryIO:
        """From the beginning, as often as wanted, before `open`. Raises what `open` does."""
        ...

    def open(self) -> BinaryIO:
        """From the beginning, for the last time.

        Raises `OSError` and, while it is read too, `UnreadableError`.
        """
        ...


class PlainFile:
    """A file on the disk. Raises `UnreadableError` where it is none, `OSError`."""

    max_bytes = UNLIMITED

    def __init__(self, path: Path) -> None:
        status = path.stat()
        # A pipe would be waited for, for ever, and could be read only once.
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("no regular file")
        self.path = path
        self.name = path.name
        self.size = status.st_size

    def open_preview(self) -> BinaryIO:
        """From the beginning."""
        return self.path.open("rb")

    def open(self) -> BinaryIO:
        """From the beginning."""
        return self.path.open("rb")


Compression = Literal["gzip", "zstd"]

_DECOMPRESSORS = {"gzip": decompress_gzip, "zstd": decompress_zstd}
_SUFFIXES = {"gzip": (".gz",), "zstd": (".zst", ".zstd")}


class CompressedFile:
    """A content that is packed by itself, as what is in it."""

    max_bytes = MAX_BUFFERED_BYTES

    def __init__(self, inner: Content, compression: Compression, limit: ExpansionLimit) -> None:
        self.path = inner.path
        self.name = _strip_suffix(inner.name, compression)
        self._inner = inner
        self._compression = compression
        self._meter = StreamMeter(limit)

    def open_preview(self) -> BinaryIO:
        """What is in it, from the beginning."""
        return self._decompress(self._inner.open_preview())

    def open(self) -> BinaryIO:
        """What is in it, from the beginning, for the last time."""
        return self._decompress(self._inner.open())

    def _decompress(self, compressed: BinaryIO) -> BinaryIO:
        return open_stream(
            _DECOMPRESSORS[self._compression](compressed), self._meter, compressed.close
        )


def _strip_suffix(name: str, compression: Compression) -> str:
    for ending in _SUFFIXES[compression]:
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def read_bytes(file: BinaryIO, max_bytes: int) -> bytes:
    """All of a file, which is closed. Raises `UnreadableError` where it is too much, `OSError`."""
    with file:
        data = file.read() if max_bytes == UNLIMITED else file.read(max_bytes + 1)
    if max_bytes != UNLIMITED and len(data) > max_bytes:
        raise UnreadableError(too_large("a document", max_bytes))
    return data


def open_seekable(content: Content) -> BinaryIO:
    """A content in which one can go back and forth. Raises as `whole` does."""
    file = content.open()
    return (
        file if isinstance(content, PlainFile) else io.BytesIO(read_bytes(file, content.max_bytes))
    )


def too_large(what: str, max_bytes: int) -> str:
    """The reason for which a part of an expanded file is not held in memory."""
    return f"{what} of more than {max_bytes} bytes: too large once it is expanded"


def member_path(archive: Path, name: str) -> Path:
    """Where a member lies: behind its archive, whatever its name tries to say."""
    parts = name.replace("\\", "/").replace("\0", "").split("/")
    return archive.joinpath(*(part for part in parts if part not in ("", ".", "..")))


def is_hidden(name: str) -> bool:
    """Whether a member is one that is left out of a folder too, or what macOS adds to a zip."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)
