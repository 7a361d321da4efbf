"""`policyguard simulate`: what would a policy have done to recorded runs?"""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.console import EXIT_INTERRUPTED, policy_error, status, usage_error, use_color
from policyguard.cli.output import check_output, write
from policyguard.cli.progress import track_progress
from policyguard.cli.replay_options import labels_option, policy_option
from policyguard.model.diagnostic import PolicyError
from policyguard.report.findings.diagnostics import render_text as render_diagnostics
from policyguard.report.replay.figures import Figures
from policyguard.report.replay.phrases import gate as told
from policyguard.report.replay.renderers import RENDERERS
from policyguard.report.replay.text import render_text
from policyguard.report.style import COLOURED
from policyguard.simulate import LabelError, ReportSize
from policyguard.simulate.gate import OPTION, Gate, GateError
from policyguard.simulate.job import Job, JobInputs
from policyguard.simulate.workers import WorkerError, find_sequential_entries, run_parallel
from policyguard.traces import TraceError, expand

_EXIT_GATE_FAILED = 1


@click.command()
@click.argument("traces", nargs=-1, required=True)
@policy_option
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
@labels_option
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
    default=ReportSize().sessions,
    show_default=True,
    help="Sessions that the report lists, those that matter most first. All of them are counted.",
)
@click.option(
    "--timelines",
    type=click.IntRange(0),
    default=ReportSize().timelines,
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
        gate = Gate(conditions, has_baseline=bool(baseline))
        job = Job(
            policies=policies,
            baseline=baseline,
            observe=mode == "observe",
            labels=labels,
            files=tuple(expand(traces)),
            report_size=ReportSize(sessions=sessions, timelines=timelines),
        )
        if output is not None:
            check_output(output, job.files)
        loaded = JobInputs.load(job)
        with track_progress(job.files) as watch:
            if workers > 1 and (entries := find_sequential_entries(loaded)):
                status(f"one worker, for {', '.join(entries)} reach beyond a session")
            figures = run_parallel(workers, job, loaded, watch)
    except PolicyError as error:
        policy_error(error)
    except GateError as error:
        policy_error(render_diagnostics(error.diagnostics))
    except (LabelError, TraceError, WorkerError) as error:
        usage_error(error)
    held = gate.evaluate(figures)
    if output is None:
        click.echo(_render(figures, form))
    else:
        write(output, RENDERERS[form](figures))
    _exit(context, figures, held=held)


def _render(figures: Figures, form: str) -> str:
    if use_color(form):
        return render_text(figures, COLOURED)
    return RENDERERS[form](figures)


def _exit(context: click.Context, figures: Figures, *, held: bool) -> None:
    for one in figures.gates:
        if one.triggered is not False:
            status(f"{OPTION} {one.expression}: {told(one)}")
    if figures.partial:
        status("interrupted: the report covers only what was read until then")
        context.exit(EXIT_INTERRUPTED)
    if not figures.traces.files:
        usage_error("no trace among the files given")
    context.exit(_EXIT_GATE_FAILED if held else 0)
