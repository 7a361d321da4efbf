"""`policyguard simulate`: replay recorded runs under a policy."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click

from policyguard.cli.executors import executor_options, open_executor
from policyguard.cli.options import (
    OUTPUT,
    Recordings,
    columns_option,
    labels_option,
    path_option,
    policy_option,
    where_option,
)
from policyguard.cli.terminal.output import check_output, write
from policyguard.cli.terminal.progress import track_progress
from policyguard.cli.terminal.status import (
    EXIT_INTERRUPTED,
    policy_error,
    status,
    suggest_next,
    terminal_style,
    usage_error,
)
from policyguard.model.diagnostic import PolicyError
from policyguard.report.findings.diagnostics import render_text as render_diagnostics
from policyguard.report.replay.assessment import next_step
from policyguard.report.replay.figures import Figures
from policyguard.report.replay.phrases import gate as describe_gate
from policyguard.report.replay.renderers import RENDERERS
from policyguard.report.replay.text import render_text
from policyguard.simulate import LabelError, ReportSize
from policyguard.simulate.gate import OPTION, Gate, GateError
from policyguard.simulate.jobs.job import Job, JobInputs, WorkerError
from policyguard.simulate.jobs.workers import find_sequential_entries
from policyguard.simulate.sample.sampling import parse_share
from policyguard.simulate.simulation import simulate as replay
from policyguard.traces import TraceError, expand

_EXIT_GATE_FAILED = 1


@click.command(epilog="Example: policyguard simulate trace.jsonl --policy policy.yaml")
@click.argument("traces", nargs=-1, required=True, type=Recordings())
@policy_option
@click.option(
    "--baseline",
    multiple=True,
    metavar="FILE_OR_PACK",
    help="The policy to compare with: shows what is newly refused and newly allowed. Repeatable: "
    "later ones override earlier ones.",
)
@click.option(
    "--mode",
    type=click.Choice(["enforce", "observe"]),
    default="enforce",
    show_default=True,
    help="enforce: drop results of refused calls; observe: keep them.",
)
@labels_option
@click.option(
    OPTION,
    "conditions",
    multiple=True,
    metavar="EXPR",
    help="Exit with 1 if this is true: CEL over the report, such as 'harm.rate > 0.01' or "
    "'baseline.newly_refused.succeeded > 0'. Repeatable.",
)
@click.option("--format", "output_format", type=click.Choice(list(RENDERERS)), default="text")
@path_option(
    *OUTPUT, dir_okay=False, metavar="FILE", help_="The report file. [default: standard output]"
)
@executor_options
@where_option
@columns_option
@click.option(
    "--sample",
    default="",
    metavar="SHARE",
    help="Replay only this share of the sessions, such as 1%, always the same ones, and some of "
    "each agent and outcome. Rates are estimates of the whole.",
)
@click.option(
    "--sessions",
    type=click.IntRange(0),
    default=ReportSize().sessions,
    show_default=True,
    help="The number of sessions to list, most important first. All sessions are counted.",
)
@click.option(
    "--timelines",
    type=click.IntRange(0),
    default=ReportSize().timelines,
    show_default=True,
    help="The number of sessions whose calls are shown one by one.",
)
@click.option(
    "--verbose", is_flag=True, help="List all refused sessions, errors and skipped places as text."
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
    output_format: str,
    output: Path | None,
    workers: int,
    executor: str,
    address: str,
    where: str,
    columns: str,
    sample: str,
    sessions: int,
    timelines: int,
    *,
    verbose: bool,
) -> None:
    """Replay recorded runs to see what a policy would have stopped.

    TRACES are files, folders and globs; formats are detected from content.

    Exit codes: 0; 1 (a --fail-on expression is true or cannot be decided); 2 (misuse, a broken
    policy, or nothing to read); 130 (interrupted: the report covers what was read until then).
    """
    started = time.monotonic()
    try:
        gate = Gate(conditions, has_baseline=bool(baseline))
        job = Job(
            policies=policies,
            baseline=baseline,
            observe=mode == "observe",
            labels=labels,
            files=tuple(expand(traces)),
            report_size=ReportSize(sessions=sessions, timelines=timelines),
            where=where,
            columns=columns,
            sample=parse_share(sample) if sample else None,
        )
        job.read_rows()
        if output is not None:
            check_output(output, job.files)
        loaded = JobInputs.load(job)
        sequential = find_sequential_entries(loaded)
        with (
            open_executor(executor, address, workers, job.files, sequential) as opened,
            track_progress(job.files, passes=2 if sample else 1) as watch,
        ):
            figures = replay(job, loaded, watch, opened)
    except PolicyError as error:
        policy_error(error)
    except GateError as error:
        policy_error(render_diagnostics(error.diagnostics))
    except (LabelError, TraceError, WorkerError) as error:
        usage_error(error)
    figures.created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    figures.elapsed_s = round(time.monotonic() - started, 3)
    gate_failed = gate.evaluate(figures)
    if output is None:
        click.echo(_render(figures, output_format, verbose=verbose))
    elif output_format == "text":
        write(output, render_text(figures, verbose=verbose))
    else:
        write(output, RENDERERS[output_format](figures))
    if step := next_step(figures):
        suggest_next(step, output_format)
    _exit(context, figures, gate_failed=gate_failed)


def _render(figures: Figures, output_format: str, *, verbose: bool) -> str:
    if output_format == "text":
        return render_text(figures, terminal_style(), verbose=verbose)
    return RENDERERS[output_format](figures)


def _exit(context: click.Context, figures: Figures, *, gate_failed: bool) -> None:
    for gate in figures.gates:
        if gate.triggered is not False:
            status(f"{OPTION} {gate.expression}: {describe_gate(gate)}")
    if figures.partial:
        status("interrupted: the report covers only what was read until then")
        context.exit(EXIT_INTERRUPTED)
    if not figures.traces.files:
        usage_error("none of the files is a trace")
    context.exit(_EXIT_GATE_FAILED if gate_failed else 0)
