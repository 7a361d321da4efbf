"""Search of a file on disk for contents that may be traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.traces.containers.content import CompressedFile, Content, PlainFile
from policyguard.traces.containers.expansion_limit import MAX_NESTING, ExpansionLimit
from policyguard.traces.containers.parquet import MAGIC as PARQUET_MAGIC
from policyguard.traces.containers.parquet import ParquetLines
from policyguard.traces.containers.row_filter import (
    ALL_ROWS,
    Rows,
    find_columns,
    partitions_of,
    simplify,
)
from policyguard.traces.containers.tar import BLOCK_BYTES, is_tar, iter_members
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.item import UnreadableError, cannot_read

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGICS = (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")
"""A frame, and a skippable frame, with which some writers begin."""
_XZ_MAGIC = b"\xfd7zXZ\0"
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_MAGICS = (_GZIP_MAGIC, *_ZSTD_MAGICS, _XZ_MAGIC, *_ZIP_MAGICS)


class UnreadableContent(msgspec.Struct, frozen=True):
    """A file or archive member that cannot be read, and the reason."""

    path: Path
    reason: str


UnpackedContent = Content | ZipArchive | UnreadableContent

IsTraceArchive = Callable[[ZipArchive], bool]
"""Returns whether a zip archive is a single trace rather than a folder of traces."""


def unpack(
    path: Path, is_trace: IsTraceArchive, rows: Rows = ALL_ROWS
) -> Iterator[UnpackedContent]:
    """Yield the contents of a file; read each before you advance. Never raises.

    A compressed file is one content. An archive for which `is_trace` is false yields its members,
    without hidden ones. Nothing is yielded of a file whose folders exclude it from `rows`.
    """
    if rows.condition is not True and simplify(rows.condition, partitions_of(path)) is False:
        return
    try:
        file = PlainFile(path)
    except (UnreadableError, OSError) as error:
        yield UnreadableContent(path, cannot_read(error))
    else:
        yield from _Unpacker(is_trace, ExpansionLimit(file.size), rows).unpack(file, 0)


class _Unpacker:
    """An unpacker for one file, up to `MAX_NESTING` layers deep."""

    def __init__(self, is_trace: IsTraceArchive, limit: ExpansionLimit, rows: Rows) -> None:
        self._is_trace = is_trace
        self._limit = limit
        self._rows = rows

    def unpack(self, content: Content, depth: int) -> Iterator[UnpackedContent]:
        try:
            yield from self._unpack_opened(content, depth)
        except (UnreadableError, OSError) as error:
            yield UnreadableContent(content.path, cannot_read(error))

    def _unpack_opened(self, content: Content, depth: int) -> Iterator[UnpackedContent]:
        with content.open_preview() as file:
            head = file.read(BLOCK_BYTES)
        if head.startswith(PARQUET_MAGIC):
            yield ParquetLines(content, self._limit, self._rows)
        elif not head.startswith(_MAGICS) and not is_tar(head):
            self._require_all_rows(content)
            yield content
        elif depth == MAX_NESTING:
            raise UnreadableError(f"more than {MAX_NESTING} layers of compression")
        elif head.startswith(_GZIP_MAGIC):
            yield from self.unpack(CompressedFile(content, "gzip", self._limit), depth + 1)
        elif head.startswith(_ZSTD_MAGICS):
            yield from self.unpack(CompressedFile(content, "zstd", self._limit), depth + 1)
        elif head.startswith(_XZ_MAGIC):
            yield from self.unpack(CompressedFile(content, "xz", self._limit), depth + 1)
        elif head.startswith(_ZIP_MAGICS):
            yield from self._unpack_zip(content, depth)
        else:
            with content.open() as archive:
                yield from self._unpack_members(iter_members(archive, content.path), depth)

    def _require_all_rows(self, content: Content) -> None:
        """Raise `UnreadableError` if only some of a file's rows are asked for: it has none."""
        condition = self._rows.condition
        if condition is not True:
            left = simplify(condition, partitions_of(content.path))
            if not isinstance(left, bool):
                column = min(find_columns(left))
                raise UnreadableError(
                    f"--where asks for `{column:.60}`, which no folder of this file names; "
                    "convert it: policyguard traces convert --to parquet"
                )

    def _unpack_zip(self, content: Content, depth: int) -> Iterator[UnpackedContent]:
        archive = ZipArchive(content, self._limit)
        try:
            if self._is_trace(archive):
                yield archive
            else:
                yield from self._unpack_members(archive.members(), depth)
        finally:
            archive.close()

    def _unpack_members(self, contents: Iterable[Content], depth: int) -> Iterator[UnpackedContent]:
        is_empty = True
        for member in contents:
            is_empty = False
            yield from self.unpack(member, depth + 1)
            if self._limit.is_exhausted:
                raise UnreadableError("the rest of the archive is too large to read")
        if is_empty:
            raise UnreadableError("an archive without files")
