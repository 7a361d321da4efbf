"""`policyguard suggest`: settings for a policy out of recorded runs, with a guarantee."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from policyguard.cli.aside import INTERRUPTED, broken, coloured, misuse, say
from policyguard.cli.output import check_output, write
from policyguard.cli.replayed import labels_option, policy_option
from policyguard.model.diagnostic import PolicyError
from policyguard.report.style import COLOURED
from policyguard.report.suggestion import render_json, render_signatures, render_text, render_yaml
from policyguard.report.suggestion_figures import Suggestion
from policyguard.report.suggestion_markdown import render_markdown
from policyguard.simulate import LabelError
from policyguard.simulate.suggest import Request, SuggestError
from policyguard.simulate.suggest import suggest as search
from policyguard.traces import TraceError, expand
from policyguard.traces.paths import real

_FORMATS: dict[str, Callable[[Suggestion], str]] = {
    "text": render_text,
    "yaml": render_yaml,
    "json": render_json,
    "markdown": render_markdown,
}
_UNPROMISED = 1
_SHARE = click.FloatRange(0.0, 1.0, min_open=True, max_open=True)


@click.command()
@click.argument("traces", nargs=-1, required=True)
@policy_option
@labels_option
@click.option(
    "--max-harm",
    type=_SHARE,
    required=True,
    help="The share of successful runs that may have a call refused, as 0.01.",
)
@click.option(
    "--delta",
    type=_SHARE,
    default=Request.__struct_defaults__[0],
    show_default=True,
    help="The probability with which the promise may fail.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Another lot for which runs are explored with, and which held out.",
)
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), default="text")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the overrides, as a layer over the policy.",
)
@click.option(
    "--signatures",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the signatures, as another layer.",
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
    form: str,
    output: Path | None,
    signatures: Path | None,
) -> None:
    """Propose thresholds, windows and budgets from recorded runs, and signatures for errors.

    TRACES are files, folders and globs. What is proposed was tested on runs that it was not found
    with, and the report says what is guaranteed of it, or why nothing can be.

    Exits with 0 (a proposal with a guarantee), 1 (nothing can be promised), 2 (misuse, a broken
    policy, or nothing to read), 130 (interrupted).
    """
    try:
        files = tuple(expand(traces))
        _check(files, output, signatures)
        request = Request(
            policies=policies,
            files=files,
            labels=labels,
            max_harm=max_harm,
            delta=delta,
            seed=seed,
            folder=(output or signatures or Path("here")).parent,
        )
        with _progress() as told:
            suggestion = search(request, told)
    except PolicyError as error:
        broken(error)
    except (LabelError, TraceError, SuggestError) as error:
        misuse(error)
    except KeyboardInterrupt:
        say("interrupted: of a part of the runs nothing can be said")
        context.exit(INTERRUPTED)
    if coloured(form):
        click.echo(render_text(suggestion, COLOURED))
    else:
        click.echo(_FORMATS[form](suggestion).removesuffix("\n"))
    if output is not None and suggestion.yaml:
        write(output, render_yaml(suggestion))
    if signatures is not None and suggestion.signatures_yaml:
        write(signatures, render_signatures(suggestion))
    context.exit(0 if suggestion.guaranteed else _UNPROMISED)


def _check(files: tuple[Path, ...], *outputs: Path | None) -> None:
    """The places of the layers."""
    wanted = [output for output in outputs if output is not None]
    for output in wanted:
        check_output(output, files)
    if len({real(output.parent) for output in wanted}) > 1:
        misuse("--output and --signatures belong in one folder")
    if len({real(output) for output in wanted}) < len(wanted):
        misuse("--output and --signatures are the same file")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows a person at a terminal what is being done."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    # rich takes long to import and is needed here only.
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update
