"""Detection of a file's format, and reading by its importer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from policyguard.traces import unrecognized
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.containers.unpack import UnpackedContent, UnreadableContent, unpack
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.importer import Importer, SeenIds
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.item import Item, Skipped, UnreadableError, cannot_read


class TraceFile(msgspec.Struct, frozen=True):
    """A file, its format (None if unrecognized) and its items, which can be read once.

    The path of an archive member is appended to that of the archive: `runs.zip/a/b.jsonl`.
    """

    path: Path
    format: str | None
    items: Iterator[Item]

    def __iter__(self) -> Iterator[Item]:
        return self.items


class Reader:
    """A reader for all files of one command, which skips runs that it has already read.

    `line_filter` selects which lines of a file in policyguard's own format to read.
    """

    def __init__(self, line_filter: Callable[[bytes], bool] | None = None) -> None:
        self._seen_ids: SeenIds = {}
        self._line_filter = line_filter

    def iter_files(self, path: str | Path) -> Iterator[TraceFile]:
        """Yield the file, or each member of an archive; read each before you advance.

        Never raises: unreadable parts become `Skipped` items.
        """
        for content in unpack(Path(path), _is_one_trace):
            yield self._open_trace(content)

    def read(self, path: str | Path) -> TraceFile:
        """Return the trace in a file that is not an archive of several files."""
        files = self.iter_files(path)
        for trace in files:
            if trace.path == Path(path):
                return TraceFile(trace.path, trace.format, _keep_open(trace.items, files))
        return _unreadable_file(Path(path), "contains several files; expected a single trace")

    def _open_trace(self, content: UnpackedContent) -> TraceFile:
        if isinstance(content, UnreadableContent):
            return _unreadable_file(content.path, content.reason)
        try:
            source = Source(content, self._line_filter)
        except UnreadableError as error:
            return _unreadable_file(content.path, str(error))
        except OSError as error:
            return _unreadable_file(content.path, cannot_read(error))
        importer = _detect_importer(source.sample)
        if importer is None:
            return _unreadable_file(content.path, unrecognized.describe(source.sample))
        items = importer.read(source, self._seen_ids)
        return TraceFile(content.path, importer.FORMAT, _catch_read_errors(source, items))


def _is_one_trace(archive: ZipArchive) -> bool:
    return _detect_importer(Sample(members=archive.names)) is not None


def _detect_importer(sample: Sample) -> Importer | None:
    return next((importer for importer in IMPORTERS if importer.detect(sample)), None)


def _catch_read_errors(source: Source, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, and `Skipped` if the file disappears or turns out to be damaged."""
    try:
        yield from items
    except OSError as error:
        yield Skipped(source.file, None, cannot_read(error))
    except UnreadableError as error:
        yield Skipped(source.file, None, str(error))


def _keep_open(items: Iterator[Item], files: Iterator[TraceFile]) -> Iterator[Item]:
    """Yield the items, then exhaust `files`, so that the file stays open until they are read."""
    yield from items
    yield from (item for trace in files for item in trace)


def _unreadable_file(path: Path, reason: str) -> TraceFile:
    return TraceFile(path, None, iter([Skipped(str(path), None, reason)]))
