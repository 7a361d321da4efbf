"""Detection of a file's format, and reading by its importer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from policyguard.model.event import Admitted, Completed
from policyguard.traces.containers.row_filter import ALL_ROWS, Rows
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.containers.unpack import (
    UnpackedContent,
    UnreadableContent,
    unpack,
)
from policyguard.traces.containers.zip import ZipArchive
from policyguard.traces.importers import IMPORTERS, Importer
from policyguard.traces.item import Item, Skipped, UnreadableError, cannot_read
from policyguard.traces.parsing.json_shape import as_list

_UNKNOWN_FORMAT = "unknown trace format (see `policyguard traces --help`, docs/trace-formats.md)"
_MAX_KEYS = 5
_MAX_KEY_LENGTH = 40


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

    `line_filter` selects which lines of a file in policyguard's own format to read, `rows` which
    rows of Parquet files and folders.
    """

    def __init__(
        self, line_filter: Callable[[bytes], bool] | None = None, rows: Rows = ALL_ROWS
    ) -> None:
        self._seen_ids: dict[str, str] = {}
        self._line_filter = line_filter
        self._rows = rows

    def iter_files(self, path: str | Path) -> Iterator[TraceFile]:
        """Yield the file, or each member of an archive; read each before you advance.

        Never raises: unreadable parts become `Skipped` items.
        """
        path = path if isinstance(path, Path) else Path(path)  # a remote file stays one
        for content in unpack(path, _is_one_trace, self._rows):
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
            source = Source(content, self._line_filter, self._seen_ids)
        except (UnreadableError, OSError) as error:
            return _unreadable_file(content.path, cannot_read(error))
        importer = _detect_importer(source.sample)
        if importer is None:
            return _unreadable_file(content.path, _describe_unrecognized(source.sample))
        items = importer.read(source)
        return TraceFile(content.path, importer.FORMAT, _catch_read_errors(source, items))


def _is_one_trace(archive: ZipArchive) -> bool:
    return _detect_importer(Sample(members=archive.names)) is not None


def _detect_importer(sample: Sample) -> Importer | None:
    return next((importer for importer in IMPORTERS if importer.detect(sample)), None)


def _catch_read_errors(source: Source, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, and `Skipped` if the file disappears or turns out to be damaged."""
    try:
        yield from items
    except (UnreadableError, OSError) as error:
        yield Skipped(source.file, None, cannot_read(error))


def _keep_open(items: Iterator[Item], files: Iterator[TraceFile]) -> Iterator[Item]:
    """Yield the items, then exhaust `files`, so that the file stays open until they are read."""
    yield from items
    yield from (item for trace in files for item in trace)


def _unreadable_file(path: Path, reason: str) -> TraceFile:
    return TraceFile(path, None, iter([Skipped(str(path), None, reason)]))


def _describe_unrecognized(sample: Sample) -> str:
    """Return in one line what the file looks like and where the formats are documented."""
    return f"{_UNKNOWN_FORMAT}: {_describe_shape(sample)}"


def _describe_shape(sample: Sample) -> str:
    document = sample.document
    if isinstance(document, dict):
        return f"one JSON object{_list_keys(document)}"
    if document == []:
        return "an empty JSON list"
    rows = as_list(document) or sample.records
    first = next((row for row in rows if isinstance(row, dict)), None)
    form = "a JSON list" if isinstance(document, list) else "JSON lines"
    return f"{form} without an object" if first is None else f"{form} of objects{_list_keys(first)}"


def _list_keys(value: dict[str, object]) -> str:
    """List the first keys; a key of an unknown file can be any text."""
    printable = [key for key in value if key.isprintable() and 0 < len(key) <= _MAX_KEY_LENGTH]
    shown = ", ".join(f"`{key}`" for key in printable[:_MAX_KEYS])
    return f" with {shown}{', …' if len(value) > _MAX_KEYS else ''}" if shown else ""


def find_call(file: Path, call: str) -> tuple[Admitted | None, Completed | None]:
    """Return the call and its result, None for either that is missing."""
    admitted: Admitted | None = None
    for item in Reader().read(file) if file.is_file() else ():
        if isinstance(item, Admitted) and item.call == call:
            admitted = item
        elif isinstance(item, Completed) and item.call == call:
            return admitted, item
    return admitted, None
