"""Files → events: detect the format, hand over to its importer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from policyguard.traces import unknown
from policyguard.traces.importer import Importer, Met
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.item import Item, Skipped, UnreadableError, cannot_read
from policyguard.traces.source import Sample, Source
from policyguard.traces.unpack import Found, Unread, unpacked
from policyguard.traces.zipped import ZipArchive


class TraceFile(msgspec.Struct, frozen=True):
    """One file: its format (None where none was recognised), and its items, to be read once.

    The path of a member of an archive goes on behind that of the archive: `runs.zip/a/b.jsonl`.
    """

    path: Path
    format: str | None
    items: Iterator[Item]

    def __iter__(self) -> Iterator[Item]:
        return self.items


class Reader:
    """Reads the files of one run, and remembers what may not be counted twice in it.

    Of files of our own format only the lines are read that `only` wants, where it is given.
    """

    def __init__(self, only: Callable[[bytes], bool] | None = None) -> None:
        self._met: Met = {}
        self._only = only

    def files(self, path: str | Path) -> Iterator[TraceFile]:
        """A file, or each member of an archive: each to be read before the next is asked for.

        Whatever cannot be read comes out as Skipped; nothing is raised.
        """
        for found in unpacked(Path(path), _is_a_format):
            yield self._trace(found)

    def read(self, path: str | Path) -> TraceFile:
        """The events of a file that is no archive of several."""
        files = self.files(path)
        for trace in files:
            if trace.path == Path(path):
                return TraceFile(trace.path, trace.format, _held_open(trace.items, files))
        return _unread(Path(path), "an archive of several files, where one was asked for")

    def _trace(self, found: Found) -> TraceFile:
        if isinstance(found, Unread):
            return _unread(found.path, found.reason)
        try:
            source = Source(found, self._only)
        except UnreadableError as error:
            return _unread(found.path, str(error))
        except OSError as error:
            return _unread(found.path, cannot_read(error))
        importer = _detected(source.sample)
        if importer is None:
            return _unread(found.path, unknown.reason(source.sample))
        items = importer.read(source, self._met)
        return TraceFile(found.path, importer.FORMAT, _guarded(source, items))


def _is_a_format(archive: ZipArchive) -> bool:
    return _detected(Sample(members=archive.names)) is not None


def _detected(sample: Sample) -> Importer | None:
    return next((importer for importer in IMPORTERS if importer.detect(sample)), None)


def _guarded(source: Source, items: Iterator[Item]) -> Iterator[Item]:
    """The items, also where the file goes away while it is read, or turns out to be broken."""
    try:
        yield from items
    except OSError as error:
        yield Skipped(source.file, None, cannot_read(error))
    except UnreadableError as error:
        yield Skipped(source.file, None, str(error))


def _held_open(items: Iterator[Item], files: Iterator[TraceFile]) -> Iterator[Item]:
    """The items. What they come from is closed when the walk through its file ends, not before."""
    yield from items
    yield from (item for trace in files for item in trace)


def _unread(path: Path, reason: str) -> TraceFile:
    return TraceFile(path, None, iter([Skipped(str(path), None, reason)]))
