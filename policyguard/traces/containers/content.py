"""Contents to read: plain files, compressed files, archive members. Nothing is written to disk."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from policyguard.traces.containers.compression import (
    decompress_gzip,
    decompress_xz,
    decompress_zstd,
    open_stream,
)
from policyguard.traces.containers.expansion_limit import BUFFER_BYTES, ExpansionLimit, StreamMeter
from policyguard.traces.item import UnreadableError

UNLIMITED = -1


class Content(Protocol):
    """A content that can be read from its start: in part for previews, then once as a whole."""

    path: Path
    """The path for reports; an archive member's is appended to that of its archive."""

    name: str
    """The file name without the suffix of a compression."""

    max_bytes: int
    """Bytes that may be held in memory at once, or `UNLIMITED`."""

    def open_preview(self) -> BinaryIO:
        """Open it from the start, any number of times before `open`. Raises the same errors."""
        ...

    def open(self) -> BinaryIO:
        """Open it from the start, once. This and reading raise `OSError`, `UnreadableError`."""
        ...


class PlainFile:
    """A file on disk. Raises `UnreadableError` if it is not a regular file, `OSError`."""

    max_bytes = UNLIMITED

    def __init__(self, path: Path) -> None:
        status = path.stat()
        # Opening a pipe can block forever, and it can be read only once.
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("not a regular file")
        self.path = path
        self.name = path.name
        self.size = status.st_size

    def open_preview(self) -> BinaryIO:
        """Open it from the start."""
        return self.path.open("rb")

    open = open_preview


Compression = Literal["gzip", "zstd", "xz"]

_DECOMPRESSORS = {"gzip": decompress_gzip, "zstd": decompress_zstd, "xz": decompress_xz}
_SUFFIXES = {"gzip": (".gz",), "zstd": (".zst", ".zstd"), "xz": (".xz",)}


class CompressedFile:
    """A compressed content, read as the content inside it."""

    max_bytes = BUFFER_BYTES

    def __init__(self, inner: Content, compression: Compression, limit: ExpansionLimit) -> None:
        self.path = inner.path
        self.name = _strip_suffix(inner.name, compression)
        self._inner = inner
        self._compression = compression
        self._meter = StreamMeter(limit)

    def open_preview(self) -> BinaryIO:
        """Open the expanded content from the start."""
        return self._decompress(self._inner.open_preview())

    def open(self) -> BinaryIO:
        """Open the expanded content from the start, once."""
        return self._decompress(self._inner.open())

    def _decompress(self, file: BinaryIO) -> BinaryIO:
        return open_stream(_DECOMPRESSORS[self._compression](file), self._meter, file.close)


def _strip_suffix(name: str, compression: Compression) -> str:
    for suffix in _SUFFIXES[compression]:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


def read_bytes(file: BinaryIO, max_bytes: int) -> bytes:
    """Return all bytes and close the file. Raises `UnreadableError` if too large, `OSError`."""
    with file:
        data = file.read() if max_bytes == UNLIMITED else file.read(max_bytes + 1)
    if max_bytes != UNLIMITED and len(data) > max_bytes:
        raise UnreadableError(too_large("a document", max_bytes))
    return data


def open_seekable(content: Content) -> BinaryIO:
    """Open a content for random access. Raises what `read_bytes` does."""
    if isinstance(content, PlainFile):
        return content.open()
    return io.BytesIO(read_bytes(content.open(), content.max_bytes))


def too_large(part: str, max_bytes: int) -> str:
    """Return why a part of an expanded file is not read."""
    return f"{part} of more than {max_bytes} bytes: too large after decompression"


def member_path(archive: Path, name: str) -> Path:
    """Return the member's path inside its archive's path, even for names like `../x`."""
    parts = name.replace("\\", "/").replace("\0", "").split("/")
    return archive.joinpath(*(part for part in parts if part not in ("", ".", "..")))


def is_hidden(name: str) -> bool:
    """Return whether a member is hidden, or metadata that macOS adds to a zip."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)
