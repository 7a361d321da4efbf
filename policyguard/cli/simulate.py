"""`policyguard simulate`: what would a policy have done to recorded runs?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from policyguard.compiler import Compiled, compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.report.figures import Figures
from policyguard.report.simulation import render_json, render_text
from policyguard.simulate import LabelError, Labels, Replay
from policyguard.traces import Reader, TraceError, TraceFile, expand

HERE = "policyguard.yaml"


@click.command()
@click.argument("traces", nargs=-1, required=True)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE_OR_PACK",
    help=f"A policy file or a pack's name; repeat it to lay one over the other. "
    f"[default: {HERE} here, else core]",
)
@click.option(
    "--mode",
    type=click.Choice(["enforce", "observe"]),
    default="enforce",
    show_default=True,
    help="enforce: a refused call's result is not taken into account; observe: it is.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help='JSONL of {"session", "success", "file"?}: which runs succeeded.',
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def simulate(
    context: click.Context,
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    mode: str,
    labels: Path | None,
    form: str,
) -> None:
    """Replay recorded runs under a policy, and report what it would have stopped and broken.

    TRACES are files, folders and globs; the format of each file is told by its content.
    """
    try:
        compiled = _compiled(policies)
        known = Labels.read(labels) if labels is not None else None
        files = list(expand(traces))
    except PolicyError as error:
        click.echo(str(error), err=True)
        context.exit(2)
    except (LabelError, TraceError) as error:
        click.echo(f"policyguard simulate: {error}", err=True)
        context.exit(2)
    figures = _replay(Replay(compiled, observe=mode == "observe", labels=known), files)
    click.echo(render_json(figures) if form == "json" else render_text(figures))
    if not figures.traces.files:
        click.echo("policyguard simulate: no trace among the files given", err=True)


def _compiled(policies: tuple[str, ...]) -> Compiled:
    if policies:
        return compile_policy(policies)
    return compile_policy(HERE if Path(HERE).is_file() else "core")


def _replay(replay: Replay, files: list[Path]) -> Figures:
    try:
        for trace in _watched(files):
            replay.add(trace)
    except KeyboardInterrupt:
        return replay.finish(interrupted=True)
    return replay.finish()


def _watched(files: list[Path]) -> Iterator[TraceFile]:
    """The trace files, with a progress bar where a person is looking."""
    reader = Reader()
    if not sys.stderr.isatty():
        for file in files:
            yield from reader.files(file)
        return
    from rich.console import Console  # rich takes long to import and is needed here only
    from rich.progress import track

    for file in track(files, "replaying", console=Console(stderr=True), transient=True):
        yield from reader.files(file)
