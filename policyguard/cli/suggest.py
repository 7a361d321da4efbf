"""`policyguard suggest`: propose settings of a policy from recorded runs."""

from __future__ import annotations

from collections.abc import Callable
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
from policyguard.cli.terminal.progress import show_status
from policyguard.cli.terminal.status import (
    EXIT_INTERRUPTED,
    policy_error,
    status,
    suggest_next,
    terminal_style,
    usage_error,
)
from policyguard.model.diagnostic import PolicyError
from policyguard.report.suggest.figures import Suggestion
from policyguard.report.suggest.markdown import render_markdown
from policyguard.report.suggest.rendering import (
    render_json,
    render_signatures,
    render_text,
    render_yaml,
)
from policyguard.simulate import LabelError
from policyguard.simulate.jobs.job import WorkerError
from policyguard.simulate.suggest import Request, SuggestError
from policyguard.simulate.suggest import suggest as search
from policyguard.traces import TraceError, expand
from policyguard.traces.input_paths import resolve_path

_FORMATS: dict[str, Callable[[Suggestion], str]] = {
    "text": render_text,
    "yaml": render_yaml,
    "json": render_json,
    "markdown": render_markdown,
}
_EXIT_NO_GUARANTEE = 1
_FRACTION = click.FloatRange(0.0, 1.0, min_open=True, max_open=True)


@click.command(epilog="Example: policyguard suggest recorded-runs/ --labels labels.jsonl")
@click.argument("traces", nargs=-1, required=True, type=Recordings())
@policy_option
@labels_option
@click.option(
    "--max-harm",
    type=_FRACTION,
    required=True,
    help="The share of successful runs that may have a refused call, such as 0.01.",
)
@click.option(
    "--delta",
    type=_FRACTION,
    default=Request.__struct_defaults__[0],
    show_default=True,
    help="The probability that the guarantee fails.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the exploration/held-out split.",
)
@executor_options
@where_option
@columns_option
@click.option("--format", "output_format", type=click.Choice(list(_FORMATS)), default="text")
@path_option(
    *OUTPUT,
    dir_okay=False,
    metavar="FILE",
    help_="Write the overrides to this file, as a layer over the policy.",
)
@path_option(
    "--signatures",
    dir_okay=False,
    metavar="FILE",
    help_="Write the signatures to this file, as another layer.",
)
@click.pass_context
def suggest(
    context: click.Context,
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    labels: Path | None,
    max_harm: float,
    delta: float,
    seed: int,
    workers: int,
    executor: str,
    address: str,
    where: str,
    columns: str,
    output_format: str,
    output: Path | None,
    signatures: Path | None,
) -> None:
    """Propose thresholds and signatures from recorded runs.

    TRACES are files, folders and globs. Proposals are tested on held-out runs; the report says what
    is guaranteed, or why nothing can be.

    Exit codes: 0 (a proposal with a guarantee); 1 (no guarantee); 2 (misuse, a broken policy, or
    nothing to read); 130 (interrupted).
    """
    try:
        files = tuple(expand(traces))
        _check_outputs(files, output, signatures)
        request = Request(
            policies=policies,
            files=files,
            labels=labels,
            max_harm=max_harm,
            delta=delta,
            seed=seed,
            where=where,
            columns=columns,
            folder=(output or signatures or Path("here")).parent,
        )
        with (
            open_executor(executor, address, workers, files) as opened,
            show_status() as on_progress,
        ):
            suggestion = search(request, on_progress, opened)
    except PolicyError as error:
        policy_error(error)
    except (LabelError, TraceError, SuggestError, WorkerError) as error:
        usage_error(error)
    except KeyboardInterrupt:
        status("interrupted: no guarantee can be given for a part of the runs")
        context.exit(EXIT_INTERRUPTED)
    if output_format == "text":
        click.echo(render_text(suggestion, terminal_style()))
    else:
        click.echo(_FORMATS[output_format](suggestion).removesuffix("\n"))
    if output is not None and suggestion.yaml:
        write(output, render_yaml(suggestion))
    elif suggestion.yaml:
        suggest_next(
            "write the layer with `-o tuned.yaml`, and `policyguard simulate` it", output_format
        )
    if signatures is not None and suggestion.signatures_yaml:
        write(signatures, render_signatures(suggestion))
    context.exit(0 if suggestion.guaranteed else _EXIT_NO_GUARANTEE)


def _check_outputs(files: tuple[Path, ...], *outputs: Path | None) -> None:
    """Check that the layers can be written."""
    wanted = [output for output in outputs if output is not None]
    for output in wanted:
        check_output(output, files)
    if len({resolve_path(output.parent) for output in wanted}) > 1:
        usage_error("--output and --signatures must be in the same folder")
    if len({resolve_path(output) for output in wanted}) < len(wanted):
        usage_error("--output and --signatures must be different files")
