"""`policyguard policy`: show merged policies, and compare them."""

from __future__ import annotations

import click

from policyguard.cli.console import policy_error, status, usage_error
from policyguard.compare.diff import diff_policies
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance, select_values
from policyguard.model.diagnostic import PolicyError, did_you_mean
from policyguard.report.policy import annotated
from policyguard.report.policy import changes as policy_changes


@click.group()
def policy() -> None:
    """Show merged policies, and compare them."""


@policy.command(epilog="Example: policyguard policy show policy.yaml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--overridden", is_flag=True, help="Show overridden values, too, with what overrides them."
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    metavar="NAME",
    help="Show only this section, such as limits or rules. Repeatable.",
)
@click.option("--own", is_flag=True, help="Show only what your own files say, not the packs.")
def show(
    files: tuple[str, ...],
    output_format: str,
    sections: tuple[str, ...],
    *,
    overridden: bool,
    own: bool,
) -> None:
    """Show the merged policy, with the layer and line of each value.

    FILE is a policy file or a pack's name; later ones override earlier ones. The output is itself a
    policy, without `extends` and with environment variables resolved. Default values are not
    shown.

    Exit codes: 0; 2 (misuse, or a broken policy).
    """
    compiled = _compile(files)
    all_values = collect_provenance(compiled.policy, compiled.merged, load_layers(files).layers)
    for section in sections:
        if section not in all_values.sections.plain:
            known = sorted(all_values.sections.plain)
            hint = did_you_mean(section, known) or f"it has {', '.join(known)}"
            usage_error(f"the policy has no section `{section}`; {hint}")
    found = select_values(all_values, sections, own=own)
    if not found.sections.plain:
        status("your own files set nothing here; leave out --own to see the packs")
    render = annotated.render_json if output_format == "json" else annotated.render_text
    click.echo(render(found, overridden=overridden))


@policy.command(epilog="Example: policyguard policy diff before.yaml after.yaml")
@click.argument("old")
@click.argument("new")
@click.option(
    "--format", "output_format", type=click.Choice(list(policy_changes.FORMATS)), default="text"
)
@click.pass_context
def diff(context: click.Context, old: str, new: str, output_format: str) -> None:
    """Show changes in meaning from OLD to NEW, not changes in text.

    Both are policy files or packs' names. Comments, metadata, examples, notation and insignificant
    order make no difference; a value from the environment differs from the same literal value.
    Each change is marked if it tightens or loosens the policy for every call.

    Exit codes: 0 (no change in meaning); 1 (changes); 2 (misuse, or a broken policy).
    """
    changes = diff_policies(_compile((old,)), _compile((new,)))
    click.echo(policy_changes.FORMATS[output_format](changes))
    context.exit(1 if changes else 0)


@policy.command(epilog="Example: policyguard policy digest policy.yaml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def digest(files: tuple[str, ...]) -> None:
    """Print the SHA-256 of a policy: of its layers and of the environment that it reads.

    Exit codes: 0; 2 (misuse, or a broken policy).
    """
    click.echo(_compile(files).evaluator.digest)


def _compile(files: tuple[str, ...]) -> CompiledPolicy:
    try:
        return compile_policy(files, cache=False)
    except PolicyError as error:
        policy_error(error)
