"""`policyguard lint`: is this policy right?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from policyguard.lint import NothingToLintError, lint_paths
from policyguard.report.diagnostics import render_json, render_text


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.pass_context
def lint(context: click.Context, paths: tuple[Path, ...], form: str, *, strict: bool) -> None:
    """Check policy files: syntax, schema, references, types, examples.

    PATHS are files and folders; without any, policyguard.yaml here, else the policies/ folder.
    Exits with 0 (clean, or warnings only), 1 (errors; with --strict anything), 2 (misuse, or
    nothing found to lint).
    """
    try:
        result = lint_paths(paths)
    except NothingToLintError as error:
        click.echo(f"policyguard lint: {error}", err=True)
        context.exit(2)
    if form == "json":
        click.echo(json.dumps(render_json(result.diagnostics), indent=2))
    else:
        if result.diagnostics:
            click.echo(render_text(result.diagnostics))
        click.echo(result.summary, err=True)
    failing = [d for d in result.diagnostics if strict or d.severity == "error"]
    context.exit(1 if failing else 0)
