"""`policyguard init`: write a starter policy."""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.options import OUTPUT
from policyguard.cli.terminal.output import write
from policyguard.cli.terminal.status import policy_error, status, suggest_next, usage_error
from policyguard.compiler import compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.lint.rule import LintContext
from policyguard.lint.rules.whole_policy import refuses_nothing
from policyguard.model.diagnostic import PolicyError
from policyguard.report.policy.starter_policy import render_starter_policy


@click.command(epilog="Example: policyguard init core")
@click.argument("pack", default="core")
@click.option(
    *OUTPUT,
    metavar="FILE",
    default="policyguard.yaml",
    show_default=True,
    help="The policy file to write; - for standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(pack: str, output: str, *, force: bool) -> None:
    """Write a policy that extends PACK, with settings as comments.

    Exit codes: 0; 2 (unknown pack, or the file exists).
    """
    try:
        text = _starter_policy(pack)
    except PolicyError as error:
        policy_error(error)
    if output == "-":
        click.echo(text, nl=False)
        return
    if Path(output).is_dir():
        usage_error(f"`{output}` is a folder; pass a file name")
    try:
        if force:
            write(Path(output), text)
        else:
            with Path(output).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        usage_error(f"`{output}` exists; use --force to overwrite it")
    except OSError as error:
        usage_error(f"`{output}`: {(error.strerror or 'cannot be written').lower()}")
    status(f"{output} extends `{pack}`; check it with `policyguard lint`")
    suggest_next(
        f"uncomment what you want to change in {output}; `policyguard simulate RUNS` shows what it "
        "would have refused in recorded runs"
    )


def _starter_policy(pack: str) -> str:
    compiled = compile_policy(pack, cache=False)
    policy, merged = compiled.policy, compiled.merged
    sections = collect_provenance(policy, merged, load_layers([pack]).layers).sections
    context = LintContext(compiled, frozenset({merged.top_layer.source.file}))
    return render_starter_policy(pack, sections, only_advises=any(refuses_nothing.check(context)))
