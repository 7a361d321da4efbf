"""`policyguard explain`: what does this expression become?"""

from __future__ import annotations

import click

from policyguard.cel import DYN, CelError, Declarations, compile  # noqa: A004 - its public name


@click.command()
@click.option("--cel", "source", required=True, metavar="EXPR", help="A CEL expression.")
@click.pass_context
def explain(context: click.Context, source: str) -> None:
    """Show the Python function that a CEL expression is compiled to.

    The variables of the policy language are known, with any fields.
    """
    names = ("call", "outcome", "session", "tags", "mark", "lists", "params", "now")
    try:
        program = compile(source, Declarations(dict.fromkeys(names, DYN)))
    except CelError as error:
        for problem in error.problems:
            click.echo(f"<expression>:{problem}", err=True)
        context.exit(1)
    click.echo(program.code)
