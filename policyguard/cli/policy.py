"""`policyguard policy`: show merged policies, compare them, and let observed entries act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from policyguard.cli.options import labels_option, path_option
from policyguard.cli.terminal.status import (
    policy_error,
    reports_errors,
    status,
    suggest_next,
    usage_error,
)
from policyguard.compare.diff import diff_policies
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance, select_values
from policyguard.lint.fixes import apply_edit
from policyguard.model.diagnostic import PolicyError, did_you_mean
from policyguard.report.policy import annotated
from policyguard.report.policy import changes as policy_changes
from policyguard.report.promotion import render_json, render_text
from policyguard.simulate.label_tables import LabelError
from policyguard.simulate.labels import Labels
from policyguard.simulate.promotion import PromotionError, collect_evidence, find_observed
from policyguard.simulate.replay import use_replay_key
from policyguard.traces import Skipped, TraceError, expand


class _ChangeKinds(click.ParamType[tuple[str, ...]]):
    """Kinds of changes, separated by commas."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the kinds, each of which is known."""
        kind = click.Choice(policy_changes.KINDS)
        return tuple(kind.convert(one.strip(), param, ctx) for one in str(value).split(","))


@click.group()
def policy() -> None:
    """Show merged policies, compare them, and let observed entries act."""


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
@click.option(
    "--fail-on",
    "kinds",
    multiple=True,
    type=_ChangeKinds(),
    help="Exit with 1 only after such changes, separated by commas: looser, tighter, undetermined, "
    "any. Repeatable.  [default: any]",
)
@click.pass_context
def diff(
    context: click.Context,
    old: str,
    new: str,
    output_format: str,
    kinds: tuple[tuple[str, ...], ...],
) -> None:
    """Show changes in meaning from OLD to NEW, not changes in text.

    Both are policy files or packs' names. Comments, metadata, examples, notation and insignificant
    order make no difference; a value from the environment differs from the same literal value.
    Each change is marked: does it tighten or loosen the policy for every call, or is that
    undetermined?

    Exit codes: 0 (no change in meaning, or none of --fail-on); 1 (changes); 2 (misuse, or a broken
    policy).
    """
    changes = diff_policies(_compile((old,)), _compile((new,)))
    click.echo(policy_changes.FORMATS[output_format](changes))
    named = dict.fromkeys(kind for several in kinds for kind in several)
    failures = {kind: policy_changes.describe_failure(kind, changes) for kind in named}
    for kind, failure in failures.items():
        if failure:
            status(f"--fail-on {kind}: {failure}")
    context.exit(1 if any(failures.values()) or (changes and not named) else 0)


@policy.command(epilog="Example: policyguard policy digest policy.yaml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def digest(files: tuple[str, ...]) -> None:
    """Print the SHA-256 of a policy: of its layers and of the environment that it reads.

    Exit codes: 0; 2 (misuse, or a broken policy).
    """
    click.echo(_compile(files).evaluator.digest)


@policy.command(
    epilog="Example: policyguard policy promote no-push --policy policy.yaml --journal runs/"
)
@click.argument("rule")
@path_option("--policy", "file", required=True, dir_okay=False, help_="The policy file.")
@path_option(
    "--journal",
    "journals",
    multiple=True,
    help_="Journals or other recorded runs: a file or folder. Repeatable.",
)
@labels_option
@click.option("--yes", is_flag=True, help="Let the entry act: change the file.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@reports_errors(PromotionError, LabelError, TraceError, OSError, ValueError)
def promote(
    rule: str,
    file: Path,
    journals: tuple[Path, ...],
    labels: Path | None,
    output_format: str,
    *,
    yes: bool,
) -> None:
    """Show what an entry in observe mode would have refused; with --yes, let it act.

    RULE is the id of a rule, limit or budget, or its end. Recorded runs are replayed, and labels
    say which of them succeeded. The file keeps its comments and its form.

    Exit codes: 0; 2 (misuse, a broken policy, or nothing to read).
    """
    compiled = use_replay_key(_compile((str(file),)))
    entry = find_observed(compiled, rule)
    if not journals:
        usage_error(f"pass --journal: there is no evidence on `{entry.id}` without recorded runs")
    known = Labels.read(labels) if labels is not None else None
    skipped: list[Skipped] = []
    figures = collect_evidence(compiled, entry.id, expand(journals), known, skipped.append)
    if skipped:
        status(f"{len(skipped)} places could not be read, the first in {skipped[0].file}")
    if not figures.sessions:
        usage_error("no session in these journals: there is no evidence")
    click.echo(render_json(figures) if output_format == "json" else render_text(figures))
    if not yes:
        suggest_next("the same with --yes lets the entry act", output_format)
        return
    restore = apply_edit(entry.edit)
    if len(diff_policies(compiled, _recompile(file, restore))) != 1:
        restore()
        usage_error("the change would concern other entries too: edit the file yourself")
    status(f"{entry.id} acts from now on: {entry.span.file}:{entry.span.line}")


def _recompile(file: Path, restore: Callable[[], None]) -> CompiledPolicy:
    try:
        return compile_policy((str(file),), cache=False)
    except PolicyError as error:
        restore()
        policy_error(error)


def _compile(files: tuple[str, ...]) -> CompiledPolicy:
    try:
        return compile_policy(files, cache=False)
    except PolicyError as error:
        policy_error(error)
