"""`policyguard simulate`: what would a policy have done to recorded runs?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from policyguard.cli.watching import watching
from policyguard.model.diagnostic import PolicyError
from policyguard.report.diagnostics import render_text as render_diagnostics
from policyguard.report.escape import for_terminal
from policyguard.report.figures import Figures
from policyguard.report.phrases import gate as told
from policyguard.report.renderers import RENDERERS
from policyguard.report.simulation import render_text
from policyguard.report.style import COLOURED
from policyguard.simulate import Keep, LabelError
from policyguard.simulate.gate import OPTION, Gate, GateError
from policyguard.simulate.job import Job, Loaded
from policyguard.simulate.workers import WorkerError, obstacle, run_with
from policyguard.traces import TraceError, among, expand

HERE = "policyguard.yaml"
_HELD, _MISUSE, _INTERRUPTED = 1, 2, 130


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
    "--baseline",
    multiple=True,
    metavar="FILE_OR_PACK",
    help="The policy that stood before: shows what is newly refused and newly allowed. Repeat it "
    "to lay one over the other.",
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
@click.option(
    OPTION,
    "conditions",
    multiple=True,
    metavar="EXPR",
    help="Exit with 1 where this holds: CEL over the report, as 'harm.rate > 0.01' or "
    "'baseline.newly_refused.succeeded > 0'. Repeat it for more.",
)
@click.option("--format", "form", type=click.Choice(list(RENDERERS)), default="text")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the report goes. [default: standard output]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Processes that share the work. The report is the same.",
)
@click.option(
    "--sessions",
    type=click.IntRange(0),
    default=Keep().sessions,
    show_default=True,
    help="Sessions that the report lists, those that matter most first. All of them are counted.",
)
@click.option(
    "--timelines",
    type=click.IntRange(0),
    default=Keep().timelines,
    show_default=True,
    help="Sessions whose calls the report shows one by one.",
)
@click.pass_context
def simulate(
    context: click.Context,
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    baseline: tuple[str, ...],
    mode: str,
    labels: Path | None,
    conditions: tuple[str, ...],
    form: str,
    output: Path | None,
    workers: int,
    sessions: int,
    timelines: int,
) -> None:
    """Replay recorded runs under a policy, and report what it would have stopped and broken.

    TRACES are files, folders and globs; the format of each file is told by its content.

    Exits with 0, 1 (a --fail-on holds, or cannot be decided), 2 (misuse, a broken policy, or
    nothing to read), 130 (interrupted: the report covers what was read until then, and says so).
    """
    try:
        gate = Gate(conditions, compared=bool(baseline))
        job = Job(
            policies=policies or ((HERE if Path(HERE).is_file() else "core"),),
            baseline=baseline,
            observe=mode == "observe",
            labels=labels,
            files=tuple(expand(traces)),
            keep=Keep(sessions=sessions, timelines=timelines),
        )
        if output is not None:
            _check_output(context, output, job.files)
        loaded = Loaded.of(job)
        with watching(job.files) as watch:
            if workers > 1 and (entries := obstacle(loaded)):
                _say(f"one worker, for {', '.join(entries)} reach beyond a session")
            figures = run_with(workers, job, loaded, watch)
    except PolicyError as error:
        click.echo(str(error), err=True)
        context.exit(_MISUSE)
    except GateError as error:
        click.echo(render_diagnostics(error.diagnostics), err=True)
        context.exit(_MISUSE)
    except (LabelError, TraceError, WorkerError) as error:
        _misuse(context, str(error))
    held = gate.judge(figures)
    if output is None:
        click.echo(_rendered(figures, form))
    else:
        _write(context, output, RENDERERS[form](figures))
    _conclude(context, figures, held=held)


def _rendered(figures: Figures, form: str) -> str:
    if form == "text" and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return render_text(figures, COLOURED)
    return RENDERERS[form](figures)


def _check_output(context: click.Context, output: Path, files: tuple[Path, ...]) -> None:
    """Find what is wrong with the place of the report before a long replay, not after it."""
    if among(output, files):
        _misuse(context, f"`{output}` is among the traces to be read")
    if not output.parent.is_dir():
        _misuse(context, f"`{output}` cannot be written: there is no folder `{output.parent}`")


def _write(context: click.Context, output: Path, report: str) -> None:
    try:
        with click.open_file(str(output), "w", encoding="utf-8", atomic=True) as file:
            file.write(report.removesuffix("\n") + "\n")
    except OSError as error:
        _misuse(context, f"`{output}` cannot be written: {error.strerror or error}")


def _conclude(context: click.Context, figures: Figures, *, held: bool) -> None:
    for one in figures.gates:
        if one.held is not False:
            _say(f"{OPTION} {one.expression}: {told(one)}")
    if figures.partial:
        _say("interrupted: the report covers only what was read until then")
        context.exit(_INTERRUPTED)
    if not figures.traces.files:
        _misuse(context, "no trace among the files given")
    context.exit(_HELD if held else 0)


def _misuse(context: click.Context, reason: str) -> NoReturn:
    _say(reason)
    context.exit(_MISUSE)


def _say(text: str) -> None:
    click.echo(f"policyguard simulate: {for_terminal(text)}", err=True)
