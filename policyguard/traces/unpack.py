"""One file on the disk → the contents in it that may be traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.traces.allowance import DEEPEST_PACKING, Allowance
from policyguard.traces.contents import Content, Packed, PlainFile
from policyguard.traces.item import UnreadableError, cannot_read
from policyguard.traces.tarred import BLOCK, is_tar, members
from policyguard.traces.zipped import ZipArchive

_GZIP = b"\x1f\x8b"
_ZSTD = (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")
"""A frame; and a frame to be passed over, which some writers begin with."""
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


class Unread(msgspec.Struct, frozen=True):
    """Something that cannot be looked into, and why."""

    path: Path
    reason: str


Found = Content | ZipArchive | Unread

Known = Callable[[ZipArchive], bool]
"""Whether a zip archive is one trace as a whole, not a folder of traces."""


def unpacked(path: Path, known: Known) -> Iterator[Found]:
    """The contents of a file, each to be read before the next is asked for. Nothing is raised.

    A file that is packed by itself is one content; an archive that is not `known` all its members,
    hidden ones left out as they are in a folder.
    """
    try:
        file = PlainFile(path)
    except OSError as error:
        yield Unread(path, cannot_read(error))
    except UnreadableError as error:
        yield Unread(path, str(error))
    else:
        yield from _Walk(known, Allowance(file.size)).found(file, 0)


class _Walk:
    """Through one file. Goes no deeper than `DEEPEST_PACKING`."""

    def __init__(self, known: Known, allowance: Allowance) -> None:
        self._known = known
        self._allowance = allowance

    def found(self, content: Content, depth: int) -> Iterator[Found]:
        try:
            yield from self._opened(content, depth)
        except OSError as error:
            yield Unread(content.path, cannot_read(error))
        except UnreadableError as error:
            yield Unread(content.path, str(error))

    def _opened(self, content: Content, depth: int) -> Iterator[Found]:
        with content.look() as file:
            head = file.read(BLOCK)
        if not head.startswith((_GZIP, *_ZSTD, *_ZIP)) and not is_tar(head):
            yield content
        elif depth == DEEPEST_PACKING:
            raise UnreadableError(f"packed more than {DEEPEST_PACKING} times over")
        elif head.startswith(_GZIP):
            yield from self.found(Packed(content, "gzip", self._allowance), depth + 1)
        elif head.startswith(_ZSTD):
            yield from self.found(Packed(content, "zstd", self._allowance), depth + 1)
        elif head.startswith(_ZIP):
            yield from self._zip(content, depth)
        else:
            with content.open() as archive:
                yield from self._each(members(archive, content.path), depth)

    def _zip(self, content: Content, depth: int) -> Iterator[Found]:
        archive = ZipArchive(content, self._allowance)
        try:
            if self._known(archive):
                yield archive
            else:
                yield from self._each(archive.members(), depth)
        finally:
            archive.close()

    def _each(self, contents: Iterable[Content], depth: int) -> Iterator[Found]:
        empty = True
        for member in contents:
            empty = False
            yield from self.found(member, depth + 1)
            if self._allowance.exhausted:
                raise UnreadableError("what follows in the archive is not read: it is too large")
        if empty:
            raise UnreadableError("an archive without files")
