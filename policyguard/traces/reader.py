"""Files → events: detect the format, hand over to its importer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from policyguard.traces.importer import Importer, Met
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.item import Item, Skipped
from policyguard.traces.source import Sample, Source, UnreadableError, cannot_read


class TraceFile(msgspec.Struct, frozen=True):
    """One file: its format (None where none was recognised), and its items, to be read once."""

    path: Path
    format: str | None
    items: Iterator[Item]

    def __iter__(self) -> Iterator[Item]:
        return self.items


class Reader:
    """Reads the files of one run, and remembers what may not be counted twice in it."""

    def __init__(self) -> None:
        self._met: Met = {}

    def read(self, path: str | Path) -> TraceFile:
        """The file's events. Whatever cannot be read comes out as Skipped; nothing is raised."""
        path = Path(path)
        try:
            source = Source(path)
        except UnreadableError as error:
            return _unread(path, str(error))
        importer = _detected(source.sample)
        if importer is None:
            return _unread(path, "no known trace format")
        items = importer.read(source, self._met)
        return TraceFile(path, importer.FORMAT, _guarded(source, items))


def _detected(sample: Sample) -> Importer | None:
    return next((importer for importer in IMPORTERS if importer.detect(sample)), None)


def _guarded(source: Source, items: Iterator[Item]) -> Iterator[Item]:
    """The items, also where the file goes away while it is read."""
    try:
        yield from items
    except OSError as error:
        yield Skipped(source.file, None, cannot_read(error))


def _unread(path: Path, reason: str) -> TraceFile:
    return TraceFile(path, None, iter([Skipped(str(path), None, reason)]))
