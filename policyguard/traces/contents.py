"""Bytes, wherever they lie: in a file, packed, or in an archive. Nothing is written to the disk."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from policyguard.traces.allowance import LONGEST_BYTES, Allowance, Meter
from policyguard.traces.item import UnreadableError
from policyguard.traces.packed import gunzipped, stream, unzstd

UNLIMITED = -1


class Content(Protocol):
    """Something that can be read from its beginning, twice: once to see what it is, once whole."""

    path: Path
    """Where it lies, as reports name it; a member's path goes on behind its archive's."""

    name: str
    """The file's name, without the ending that says how it is packed."""

    longest: int
    """Bytes that may be held in memory at once, or `UNLIMITED`."""

    def look(self) -> BinaryIO:
        """From the beginning, as often as wanted, before `open`. Raises what `open` does."""
        ...

    def open(self) -> BinaryIO:
        """From the beginning, for the last time.

        Raises `OSError` and, while it is read too, `UnreadableError`.
        """
        ...


class PlainFile:
    """A file on the disk. Raises `UnreadableError` where it is none, `OSError`."""

    longest = UNLIMITED

    def __init__(self, path: Path) -> None:
        status = path.stat()
        # A pipe would be waited for, for ever, and could be read only once.
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("no regular file")
        self.path = path
        self.name = path.name
        self.size = status.st_size

    def look(self) -> BinaryIO:
        """From the beginning."""
        return self.path.open("rb")

    def open(self) -> BinaryIO:
        """From the beginning."""
        return self.path.open("rb")


Packing = Literal["gzip", "zstd"]

_EXPANDERS = {"gzip": gunzipped, "zstd": unzstd}
_ENDINGS = {"gzip": (".gz",), "zstd": (".zst", ".zstd")}


class Packed:
    """A content that is packed by itself, as what is in it."""

    longest = LONGEST_BYTES

    def __init__(self, inner: Content, packing: Packing, allowance: Allowance) -> None:
        self.path = inner.path
        self.name = _without_ending(inner.name, packing)
        self._inner = inner
        self._packing = packing
        self._meter = Meter(allowance)

    def look(self) -> BinaryIO:
        """What is in it, from the beginning."""
        return self._expanded(self._inner.look())

    def open(self) -> BinaryIO:
        """What is in it, from the beginning, for the last time."""
        return self._expanded(self._inner.open())

    def _expanded(self, packed: BinaryIO) -> BinaryIO:
        return stream(_EXPANDERS[self._packing](packed), self._meter, packed.close)


def _without_ending(name: str, packing: Packing) -> str:
    for ending in _ENDINGS[packing]:
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def whole(file: BinaryIO, longest: int) -> bytes:
    """All of a file, which is closed. Raises `UnreadableError` where it is too much, `OSError`."""
    with file:
        data = file.read() if longest == UNLIMITED else file.read(longest + 1)
    if longest != UNLIMITED and len(data) > longest:
        raise UnreadableError(too_long("a document", longest))
    return data


def seekable(content: Content) -> BinaryIO:
    """A content in which one can go back and forth. Raises as `whole` does."""
    file = content.open()
    return file if isinstance(content, PlainFile) else io.BytesIO(whole(file, content.longest))


def too_long(what: str, longest: int) -> str:
    """The reason for which a part of an expanded file is not held in memory."""
    return f"{what} of more than {longest} bytes: too large once it is expanded"


def member_path(archive: Path, name: str) -> Path:
    """Where a member lies: behind its archive, whatever its name tries to say."""
    parts = name.replace("\\", "/").replace("\0", "").split("/")
    return archive.joinpath(*(part for part in parts if part not in ("", ".", "..")))


def is_hidden(name: str) -> bool:
    """Whether a member is one that is left out of a folder too, or what macOS adds to a zip."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return not parts or any(part.startswith(".") or part == "__MACOSX" for part in parts)
