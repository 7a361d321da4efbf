"""`policyguard traces`: statistics of recorded runs, and conversion to events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import click
import msgspec

from policyguard.cli.options import OUTPUT, Recordings, columns_option, path_option, where_option
from policyguard.cli.terminal.output import STDOUT, check_output, open_output
from policyguard.cli.terminal.status import status, usage_error
from policyguard.journal.format import encode
from policyguard.model.event import Event
from policyguard.report.escape import for_json
from policyguard.traces import Reader, Skipped, TraceError, TraceFile, expand
from policyguard.traces.containers.row_filter import Rows
from policyguard.traces.convert import RenamedSession, convert_traces, read_trees
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.stats import collect_stats
from policyguard.traces.stats_text import render_text
from policyguard.traces.where import read_rows
from policyguard.traces.writers.ocsf import write_ocsf
from policyguard.traces.writers.otlp import write_otlp

_WRITERS = {"otlp": write_otlp, "ocsf": write_ocsf}
"""Formats other than policyguard's own."""


@click.group(epilog=f"Formats: {', '.join(importer.FORMAT for importer in IMPORTERS)}.")
def traces() -> None:
    """Count what is in recorded runs, and convert them.

    PATHS are files, folders and globs; formats are detected from content. Compressed files (gz,
    zst) and archives (zip, tar) are unpacked.
    """


@traces.command(epilog="Example: policyguard traces stats recorded-runs/")
@click.argument("paths", nargs=-1, required=True, type=Recordings())
@where_option
@columns_option
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
def stats(paths: tuple[str, ...], where: str, columns: str, output_format: str) -> None:
    """Count sessions, calls, results, errors and skipped lines.

    The counts are per format and per file. Of Parquet files the bytes that were read are said.
    Exit codes: 0; 2 (none of the files is a trace).
    """
    files, read = _expand(paths), _BytesRead()
    figures = collect_stats(_read_files(files, _read_rows(where, columns, read.add)))
    read.report(files)
    if output_format == "json":
        click.echo(for_json(msgspec.json.encode(figures).decode()))
    else:
        click.echo(render_text(figures))
    if not figures.formats:
        usage_error("none of the files is a trace")


@traces.command(epilog="Example: policyguard traces convert recorded-runs/ -o runs.jsonl")
@click.argument("paths", nargs=-1, required=True, type=Recordings())
@path_option(
    *OUTPUT, required=True, metavar="FILE", help_="The file to write; - for standard output."
)
@click.option(
    "--to",
    "output_format",
    type=click.Choice(["events", *_WRITERS, "parquet"]),
    default="events",
    show_default=True,
    help="Events, OpenTelemetry spans (OTLP), refusals as security findings (OCSF), or Parquet, "
    "which is small and can be read in part (see --where).",
)
@where_option
@columns_option
@click.option("--content", is_flag=True, help="With otlp and ocsf: arguments and results too.")
@click.pass_context
def convert(
    context: click.Context,
    paths: tuple[str, ...],
    output: Path,
    output_format: str,
    where: str,
    columns: str,
    *,
    content: bool,
) -> None:
    """Convert recordings and journals, by default to policyguard's own format.

    `simulate` reads it fastest. A session whose id occurred in an earlier file becomes `id#1`.
    Sub-agents' events are merged with their parents' by time. Each session names the file that it
    comes from, as labels may.

    Exit codes: 0; 1 (nothing was converted, and no file is written); 2 (misuse).
    """
    files = _expand(paths)
    check_output(output, files)
    rows = _read_rows(where, columns)
    conversion = _Conversion(convert_traces(read_trees(files, rows)))
    written = 0
    with open_output(output) as file:
        if output_format == "parquet":
            written = _write_parquet(conversion, file)
        else:
            for line in _write(conversion, output_format, content):
                written += 1
                if output == STDOUT:
                    line = for_json(line.decode()).encode()
                file.write(line + b"\n")
        status(_summary(conversion, output_format, written))
        if not written:  # leaves the output file as it was
            context.exit(1)


class _Conversion:
    """The events of a conversion; what else occurs is said, and counted."""

    def __init__(self, items: Iterator[Event | Skipped | RenamedSession]) -> None:
        self._items = items
        self.events = self.skipped = 0

    def __iter__(self) -> Iterator[Event]:
        for item in self._items:
            if isinstance(item, Skipped):
                self.skipped += 1
                location = item.file if item.line is None else f"{item.file}:{item.line}"
                status(f"skipped {location}: {item.reason}")
            elif isinstance(item, RenamedSession):
                status(f"session `{item.old_id}` of {item.file} becomes `{item.new_id}`")
            else:
                self.events += 1
                yield item


def _write(events: Iterable[Event], output_format: str, content: bool) -> Iterator[bytes]:
    write = _WRITERS.get(output_format)
    return map(encode, events) if write is None else write(events, content=content)


def _write_parquet(events: Iterable[Event], file: IO[bytes]) -> int:
    try:
        from policyguard.traces.writers.parquet import write_parquet  # needs `pyarrow`
    except ImportError as error:
        usage_error(error)
    return write_parquet(events, file)


def _read_rows(where: str, columns: str, count: Callable[[int], None] | None = None) -> Rows:
    try:
        return read_rows(where, columns, count)
    except TraceError as error:
        usage_error(error)


class _BytesRead:
    """Counts what was read of Parquet files."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Count bytes that were read."""
        self._bytes += size

    def report(self, files: list[Path]) -> None:
        """Say how many were read, if any."""
        if self._bytes:
            total = sum(file.stat().st_size for file in files if file.is_file())
            status(f"read {self._bytes:,} bytes of Parquet; the files have {total:,}")


def _summary(conversion: _Conversion, output_format: str, written: int) -> str:
    if output_format in ("events", "parquet"):
        return f"{written} events written, {conversion.skipped} skipped"
    things = "findings" if output_format == "ocsf" else "lines of spans"
    return (
        f"{written} {things} written from {conversion.events} events, {conversion.skipped} skipped"
    )


def _expand(paths: tuple[str, ...]) -> list[Path]:
    try:
        return list(expand(paths))
    except TraceError as error:
        usage_error(error)


def _read_files(paths: list[Path], rows: Rows) -> Iterator[TraceFile]:
    reader = Reader(rows=rows)
    for path in paths:
        yield from reader.iter_files(path)
