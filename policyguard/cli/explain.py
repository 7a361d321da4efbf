"""`policyguard explain`: explain a diagnostic, or a CEL expression."""

from __future__ import annotations

import click

from policyguard.cel import DYN, CelError, Declarations, compile  # noqa: A004 - its public name
from policyguard.cli.terminal.status import usage_error
from policyguard.lint.catalog import ALL_PAGES
from policyguard.lint.catalog import explain as explain_code
from policyguard.model.diagnostic import did_you_mean


@click.command(epilog="Example: policyguard explain lint/never-matches")
@click.argument("code", required=False)
@click.option("--cel", "source", metavar="EXPR", help="Show the Python that EXPR compiles to.")
@click.pass_context
def explain(context: click.Context, code: str | None, source: str | None) -> None:
    """Explain a diagnostic CODE, or a CEL expression (--cel).

    EXPR may use the variables of the policy language, with any fields. Exit codes: 0; 1 (EXPR is
    invalid); 2 (misuse, or an unknown CODE).
    """
    if (code is None) is (source is None):
        raise click.UsageError("pass either CODE or --cel EXPR")
    if code is not None:
        _explain_code(code)
    else:
        _explain_cel(context, source or "")


def _explain_code(code: str) -> None:
    text = explain_code(code)
    if text is None:
        hint = did_you_mean(code, ALL_PAGES)
        usage_error(f"unknown code `{code}`{f'; {hint}' if hint else ''}")
    click.echo(text)


def _explain_cel(context: click.Context, source: str) -> None:
    names = ("call", "outcome", "session", "tags", "mark", "lists", "params", "now")
    try:
        program = compile(source, Declarations(dict.fromkeys(names, DYN)))
    except CelError as error:
        for problem in error.problems:
            click.echo(f"<expression>:{problem}", err=True)
        context.exit(1)
    click.echo(program.code)
