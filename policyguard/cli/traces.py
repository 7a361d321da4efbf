"""`policyguard traces`: what recorded runs consist of, and recorded runs as events of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from policyguard.cli.console import status, usage_error
from policyguard.cli.output import STDOUT, check_output, open_output
from policyguard.journal.format import encode
from policyguard.report.escape import for_json
from policyguard.traces import Reader, Skipped, TraceError, TraceFile, expand
from policyguard.traces.convert import RenamedSession, convert_traces
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.interleaving import InterleavedFiles
from policyguard.traces.session_trees import find_session_trees
from policyguard.traces.stats import collect_stats as counted
from policyguard.traces.stats_text import render_text


@click.group(epilog=f"Formats: {', '.join(importer.FORMAT for importer in IMPORTERS)}.")
def traces() -> None:
    """Look at recorded runs, and convert them.

    PATHS are files, folders and globs; the format of each file is told by its content. Packed
    files (gz, zst) are read as what is in them, archives (zip, tar) member by member.
    """


@traces.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def stats(paths: tuple[str, ...], form: str) -> None:
    """Sessions, calls, results and errors of each format and file, and what was skipped.

    Exits with 2 where nothing given is a trace.
    """
    figures = counted(_read_files(_expand(paths)))
    if form == "json":
        click.echo(for_json(msgspec.json.encode(figures).decode()))
    else:
        click.echo(render_text(figures))
    if not figures.formats:
        usage_error("no trace among the files given")


@traces.command()
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Where the events go, one a line; - for standard output.",
)
@click.pass_context
def convert(context: click.Context, paths: tuple[str, ...], output: Path) -> None:
    """Write all sessions as events of policyguard's own format, which simulate reads fastest.

    A session whose id an earlier file has had becomes `id#1`. Sub-agents' sessions are put among
    their parents', in the order of their times. Labels that name a `file` do not match what is
    converted, but where the output has the name of that file. Where nothing is converted no file
    is written, one that is there stays, and it exits with 1.
    """
    files = _expand(paths)
    check_output(output, files)
    events = skipped = 0
    with open_output(output) as file:
        for item in convert_traces(_read_merged(files)):
            if isinstance(item, Skipped):
                skipped += 1
                place = item.file if item.line is None else f"{item.file}:{item.line}"
                status(f"skipped {place}: {item.reason}")
            elif isinstance(item, RenamedSession):
                status(f"session `{item.old_id}` of {item.file} is `{item.new_id}`")
            else:
                events += 1
                line = encode(item)
                if output == STDOUT:
                    line = for_json(line.decode()).encode()
                file.write(line + b"\n")
        status(f"{events} events written, {skipped} skipped")
        if not events:  # ends what is opened as an error does: the output stays what it was
            context.exit(1)


def _expand(paths: tuple[str, ...]) -> list[Path]:
    try:
        return list(expand(paths))
    except TraceError as error:
        usage_error(error)


def _read_files(paths: list[Path]) -> Iterator[TraceFile]:
    reader = Reader()
    for path in paths:
        yield from reader.iter_files(path)


def _read_merged(files: list[Path]) -> Iterator[TraceFile]:
    """The files, those of a family as one."""
    reader = Reader()
    for family in find_session_trees(files):
        first, *others = family.indices
        if others:
            yield TraceFile(files[first], None, iter(InterleavedFiles(reader, files, family)))
        else:
            yield from reader.iter_files(files[first])
