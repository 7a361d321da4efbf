"""A layer that takes strength from another one.

`mode: observe` and `on_internal_error: allow` of an inherited file hold for the whole policy: no
entry of its own refuses a call. And a layer may loosen what an inherited file of yours sets: switch
it to observe, give it a weaker effect, raise its limit, look back less far, cover fewer calls, let
the call run without an approval. What is neither tighter nor looser by itself, such as another
`when`, is said once per entry. Each may be meant; none should go unseen, also in the files between
this one and the base. Tuning the packs that come with policyguard is not reported, and a param may
take any value within its bounds.

`classify.targets` and the lists of `fingerprint` replace the inherited ones as a whole. Targets
that they leave out are reported, also a pack's: inherited entries no longer see them. Arguments
that are no longer ignored let a loop pass. Those that are now ignored, folded or compared with a
tolerance widen each approval that an inherited rule asks for. An item taken from a list in `lists`
is reported too, and one added to a list that exempts calls (`unless`).

Avoid:

    # base.yaml has `mode: observe`
    extends: [base.yaml]
    rules: {no-drop: {tools: [drop_*], effect: block}}

Prefer to say the mode where the rules are, and to loosen a limit with a reason:

    extends: [base.yaml]
    mode: enforce
    budgets:
      mails: {calls: 50}   # policyguard: ignore[lint/weakened-by-a-layer] newsletters
    classify:
      targets: [path, file, dest]   # the base has [path, file]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from policyguard.compare.layers import LayerChange, compare_layers
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.merge.layers import LayerStep
from policyguard.engines.yaml_tree import MappingNode, to_plain
from policyguard.lint.analysis.weakened_lists import check_arguments, check_lists
from policyguard.lint.rule import Finding, LintContext

_WEAK_SETTINGS = {"mode": ("observe", "enforce"), "on_internal_error": ("allow", "block")}
"""Settings of the whole policy: the weak value, and the strong one, which is the default."""
_REFUSING_SECTIONS = ("rules", "budgets", "limits", "learn", "radius")
_KEEP = "keep the inherited value, or ignore this with a reason"


def check(context: LintContext) -> Iterator[Finding]:
    """Report weak inherited settings, and what each layer of the user's loosens."""
    trees = context.cel_trees.values()
    for step, changes in compare_layers(context.policy, context.merged, trees):
        for finding in _check_layer(context, step, changes):
            yield finding._replace(in_any_layer=True)


def _check_layer(
    context: LintContext, step: LayerStep, changes: list[LayerChange]
) -> Iterator[Finding]:
    """Report what a layer weakens, unless a later one takes it back."""
    tree = context.merged.tree
    yield from _check_settings(step, tree)
    yield from check_arguments(step, tree)
    yield from check_lists(context, step)
    is_counting = _find_refusing_file(step.inherited, ("limits", "learn"))
    known = [change for change in changes if change.old or change.field or is_counting]
    for _, group in groupby(known, lambda change: change.entry):
        yield from _check_entry(list(group))


def _check_entry(changes: list[LayerChange]) -> Iterator[Finding]:
    """Report what is looser in an entry, and once what else is replaced."""
    first = changes[0]
    name = f"`{first.entry.replace('/', '.')}` of {first.file}"
    for change in changes:
        if change.direction:
            yield Finding(change.span, f"this loosens {name}: {_describe(change)}", _KEEP)
    others = [change for change in changes if not change.direction]
    if others:
        keys = ", ".join(f"`{_key(change)}`" for change in others if change.field)
        message = f"this replaces {keys + ' of ' if keys else ''}{name}"
        if first.old is None and not first.field:
            message = (
                f"this changes what the limits of {first.file} count: they leave it at its default"
            )
        help_text = "check that it refuses what it did, or ignore this with a reason"
        yield Finding(others[0].span, message, help_text)


def _describe(change: LayerChange) -> str:
    key = _key(change)
    match key, change.old, change.new:
        case "", _, "`none`":
            return "it is switched off"
        case "mode", _, _:
            return "it no longer acts"
        case _, old, None:
            return f"`{key}: {(old or '').strip('`')}` is gone"
        case _, None, _:
            return f"`{key}` is added"
    return f"{f'`{key}` ' if key else 'it '}changes from {change.old} to {change.new}"


def _key(change: LayerChange) -> str:
    """Return the key of a changed value, without its index in a list."""
    return ".".join(step for step in change.field if not step.isdecimal())


def _check_settings(step: LayerStep, tree: MappingNode) -> Iterator[Finding]:
    """Report settings of the whole policy that weaken the other layer's entries."""
    top, inherited = step.layer, step.inherited
    for name, (weak, strong) in _WEAK_SETTINGS.items():
        own, old, last = top.get(name), inherited.get(name), tree.get(name)
        if last is None or to_plain(last) != weak:
            continue
        if own is not None and to_plain(own) == weak:
            if old is not None and to_plain(old) == strong:
                message = f"this weakens the inherited `{name}: {strong}` for the whole policy"
                yield Finding(own.span, message, "remove it, or ignore this with a reason")
            elif old is None and (file := _find_refusing_file(inherited)):
                message = f"this weakens the entries of {file}: the default is `{name}: {strong}`"
                yield Finding(own.span, message, "remove it, or ignore this with a reason")
        elif own is None and old is not None and to_plain(old) == weak:
            section = next((key for key in _REFUSING_SECTIONS if key in top), None)
            if section is not None:
                message = (
                    f"`{name}: {weak}` of {old.source.file} holds here too: "
                    f"nothing in this file {'refuses a call' if name == 'mode' else 'fails closed'}"
                )
                help_text = f"write `{name}: {strong}`, or repeat `{name}: {weak}` to confirm it"
                yield Finding(find_span(top, (section,), key=True), message, help_text)


def _find_refusing_file(inherited: MappingNode, names: tuple[str, ...] = _REFUSING_SECTIONS) -> str:
    """Return a file, not a pack's, whose entries may refuse calls; empty if there is none."""
    sections = [inherited.get(key) for key in names]
    entries = [node for one in sections if isinstance(one, MappingNode) for _, node in one.entries]
    files = (node.source.file for node in entries)
    return next((file for file in files if not file.startswith(PACK_PREFIX)), "")
