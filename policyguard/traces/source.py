"""A file of untrusted content: how it is sampled for detection and read without surprises."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from policyguard.traces.item import Skipped
from policyguard.traces.json_text import JsonError, decode

_SAMPLED_LINES = 50
"""How many lines a format is recognised by: some begin with pages of bookkeeping."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class UnreadableError(Exception):
    """A file from which no JSON can be had; the message is the reason."""


class Sample(msgspec.Struct, frozen=True):
    """The part of a file by which importers recognise their format.

    `records` are the first values of a file of one JSON value a line, `document` the value of a
    file that is one. A file of a single line is both; otherwise the other is empty or None.
    """

    records: tuple[object, ...] = ()
    document: object = None


class Source:
    """One file and its sample. Raises `UnreadableError` where no JSON can be had from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = str(path)
        self.name = path.name
        try:
            self.sample = _sampled(path)
        except OSError as error:
            raise UnreadableError(cannot_read(error)) from None

    def lines(self) -> Iterator[tuple[int, object] | Skipped]:
        """Each line's number (from 1) and value; a line that is no JSON is Skipped.

        Raises `OSError` where the file goes away.
        """
        for number, line in self.raw_lines():
            try:
                value = decode(line)
            except JsonError as error:
                yield Skipped(self.file, number, str(error))
            else:
                yield number, value

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line's number (from 1) and bytes, blank lines left out. Raises `OSError`."""
        with self.path.open("rb") as file:
            yield from _filled(file)


def cannot_read(error: OSError) -> str:
    """The reason, in the words of the system."""
    return f"cannot be read: {error.strerror or error}"


def _sampled(path: Path) -> Sample:
    # A pipe would be waited for, for ever, and could be read only once.
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableError("no regular file")
    with path.open("rb") as file:
        head = [line for _, line in itertools.islice(_filled(file), _SAMPLED_LINES)]
    if not head:
        raise UnreadableError("empty")
    if any(b"\0" in line for line in head):
        raise UnreadableError("binary, or not UTF-8")
    first = _values(head[:1])
    if not first:
        return _as_document(path, head)
    if len(head) == 1:
        return Sample(records=first, document=first[0])
    return Sample(records=_values(head))


def _as_document(path: Path, head: list[bytes]) -> Sample:
    """A file whose first line is no JSON value: one document, or lines with a broken first."""
    try:
        return Sample(document=decode(path.read_bytes()))
    except JsonError as error:
        records = _values(head)
        if any(isinstance(record, dict) for record in records):
            return Sample(records=records)
        looks_like_json = head[0].lstrip()[:1] in (b"{", b"[")
        raise UnreadableError(str(error) if looks_like_json else "no JSON") from None


def _filled(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip()
        if text:
            yield number, text


def _values(lines: list[bytes]) -> tuple[object, ...]:
    return tuple(value for line in lines for value in _value(line))


def _value(line: bytes) -> Iterator[object]:
    try:
        yield decode(line)
    except JsonError:
        return
