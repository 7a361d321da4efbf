"""Sampling of untrusted content for detection, and its reading as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import msgspec

from policyguard.traces.containers.content import UNLIMITED, Content, read_bytes, too_large
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.item import Skipped, UnreadableError
from policyguard.traces.parsing.json_text import JsonError, decode

_SAMPLED_LINES = 50
"""Lines to detect a format by: some begin with pages of bookkeeping."""

_SQLITE = b"SQLite format 3\0"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Sample(msgspec.Struct, frozen=True):
    """The part of a file by which importers detect their format.

    `records` are the first values of a file of JSON lines, `document` is the value of a JSON
    document. A file of a single line has both. `members` are the names in a zip archive.
    """

    records: tuple[object, ...] = ()
    document: object = None
    members: tuple[str, ...] = ()


class Source:
    """A content, or a zip archive that is one trace, with its sample.

    `line_filter` selects lines of a file in policyguard's own format; None selects all. `seen_ids`
    are those of runs that several files may contain, each with the file it was first read from.
    Raises `UnreadableError` if it contains no JSON, `OSError`.
    """

    def __init__(
        self,
        content: Content | ZipArchive,
        line_filter: Callable[[bytes], bool] | None = None,
        seen_ids: dict[str, str] | None = None,
    ) -> None:
        self.path = content.path
        self.file = str(content.path)
        self.name = content.name
        self.line_filter = line_filter
        self.seen_ids = {} if seen_ids is None else seen_ids
        self._content = content
        if isinstance(content, ZipArchive):
            self.sample = Sample(members=content.names)
        else:
            self.sample = _take_sample(content)

    def lines(self) -> Iterator[tuple[int, object] | Skipped]:
        """Yield each line's number (from 1) and value, or `Skipped` for a line that is not JSON.

        If the file turns out to be damaged, its rest is skipped. Raises `OSError`.
        """
        try:
            for number, line in self.raw_lines():
                try:
                    value = decode(line)
                except JsonError as error:
                    yield Skipped(self.file, number, str(error))
                else:
                    yield number, value
        except UnreadableError as error:
            yield Skipped(self.file, None, str(error))

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number (from 1) and bytes of each line that is not blank; call it once.

        Raises `OSError`, `UnreadableError`.
        """
        if isinstance(self._content, ZipArchive):
            return
        with self._content.open() as file:
            yield from _nonblank_lines(file, self._content.max_bytes)

    def values(self) -> Iterator[tuple[int | None, object] | Skipped]:
        """Yield the items of a document that is a list, else the document, else each line."""
        document = self.sample.document
        return self.items_or_lines(document if isinstance(document, list | None) else [document])

    def items_or_lines(self, items: object) -> Iterator[tuple[int | None, object] | Skipped]:
        """Yield the items of a list found in the document, else each line."""
        if isinstance(items, list):
            yield from ((None, item) for item in items)
        else:
            yield from self.lines()

    def read_member(self, name: str) -> object:
        """Return the JSON document in an archive member. Raises `UnreadableError`, `OSError`."""
        if not isinstance(self._content, ZipArchive):
            raise UnreadableError("not an archive")
        member = self._content.member(name)
        return _decode_document(read_bytes(member.open(), member.max_bytes))


def _take_sample(content: Content) -> Sample:
    with content.open_preview() as file:
        head = list(_first_lines(file, content.max_bytes))
    if not head:
        raise UnreadableError("empty")
    if head[0].startswith(_SQLITE):
        raise UnreadableError(
            "a database; a store's journals are in the folder `journal` beside it"
        )
    if any(b"\0" in line for line in head):
        raise UnreadableError("binary, or not UTF-8")
    first = _decode_lines(head[:1])
    if not first:
        return _sample_document(content, head)
    if len(head) == 1:
        return Sample(records=first, document=first[0])
    return Sample(records=_decode_lines(head))


def _first_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """Yield the first lines, up to any damage, which `Source.lines` reports."""
    count = 0
    try:
        for _, line in itertools.islice(_nonblank_lines(file, max_bytes), _SAMPLED_LINES):
            count += 1
            yield line
    except UnreadableError:
        if not count:
            raise


def _sample_document(content: Content, head: list[bytes]) -> Sample:
    """Sample a file whose first line is not JSON: a document, or lines with a damaged first."""
    records = _decode_lines(head)
    try:
        data = read_bytes(content.open_preview(), content.max_bytes)
        return Sample(document=_decode_document(data))
    except UnreadableError as error:
        if any(isinstance(record, dict) for record in records):
            return Sample(records=records)
        # Damage to the file explains more than its lack of JSON.
        if not isinstance(error.__cause__, JsonError) or head[0].lstrip()[:1] in (b"{", b"["):
            raise
        raise UnreadableError("not JSON") from None


def _decode_document(data: bytes) -> object:
    try:
        return decode(data)
    except JsonError as error:
        raise UnreadableError(str(error)) from error


def _nonblank_lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(_iter_lines(file, max_bytes), start=1):
        text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip()
        if text:
            yield number, text


def _iter_lines(file: BinaryIO, max_bytes: int) -> Iterable[bytes]:
    return file if max_bytes == UNLIMITED else _bounded_lines(file, max_bytes)


def _bounded_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    while line := file.readline(max_bytes + 1):
        if len(line) > max_bytes:
            raise UnreadableError(too_large("a line", max_bytes))
        yield line


def _decode_lines(lines: list[bytes]) -> tuple[object, ...]:
    return tuple(value for line in lines for value in _try_decode(line))


def _try_decode(line: bytes) -> Iterator[object]:
    try:
        yield decode(line)
    except JsonError:
        return
