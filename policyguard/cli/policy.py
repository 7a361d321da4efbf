"""`policyguard policy`: what does a policy say, all layers in one, and what has changed in it?"""

from __future__ import annotations

import click

from policyguard.cli.console import policy_error
from policyguard.compare.diff import diff_policies
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.model.diagnostic import PolicyError
from policyguard.report.policy import annotated
from policyguard.report.policy import changes as policy_changes


@click.group()
def policy() -> None:
    """Look at policies, and compare them."""


@policy.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--overridden", is_flag=True, help="Show what does not hold any more, and why.")
def show(files: tuple[str, ...], form: str, *, overridden: bool) -> None:
    """Show the merged policy, each value with the layer and line that it comes from.

    FILE is a policy file or a pack's name; of several, a later one wins. The text is a policy
    again, without `extends`, where the environment changes nothing any more. What no layer gives
    has its default, and is not shown.

    Exits with 0, or 2 (misuse, or a broken policy).
    """
    compiled = _compile(files)
    found = collect_provenance(compiled.policy, compiled.merged, load_layers(files).layers)
    render = annotated.render_json if form == "json" else annotated.render_text
    click.echo(render(found, overridden=overridden))


@policy.command()
@click.argument("old")
@click.argument("new")
@click.option("--format", "form", type=click.Choice(list(policy_changes.FORMATS)), default="text")
@click.pass_context
def diff(context: click.Context, old: str, new: str, form: str) -> None:
    """Show what has changed from OLD to NEW in meaning, not in text.

    Both are policy files or packs' names. Order where it does not matter, comments, metadata,
    examples and how values are written make no difference; a value that the environment may change
    is another one than the value that it has now. Of each change it is said whether it tightens or
    loosens the policy, where that holds for every call.

    Exits with 0 (no change in meaning), 1 (changes), 2 (misuse, or a broken policy).
    """
    changes = diff_policies(_compile((old,)), _compile((new,)))
    click.echo(policy_changes.FORMATS[form](changes))
    context.exit(1 if changes else 0)


def _compile(files: tuple[str, ...]) -> CompiledPolicy:
    try:
        return compile_policy(files, cache=False)
    except PolicyError as error:
        policy_error(error)
