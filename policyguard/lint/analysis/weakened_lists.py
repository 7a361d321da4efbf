"""Lists of a layer with which inherited entries see fewer calls, or approve more."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.expressions import reads_field
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.compiler.load.layer_validation import find_span
from policyguard.compiler.merge.layers import LayerStep
from policyguard.compiler.merge.merger import merge_layer
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    descend,
    to_plain,
)
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_TARGETS: Path = ("classify", "targets")
_WIDENED = {"ignore": "", "fold": "case of ", "tolerance": "value close to that of "}
"""Lists of arguments in `classify.fingerprint`, and what an approval holds for with them."""


def check_arguments(step: LayerStep, tree: MappingNode) -> Iterator[Finding]:
    """Report lists of arguments, replaced as a whole, with which inherited entries see less."""
    top, inherited = step.layer, step.inherited
    for names in (_TARGETS, *(("classify", "fingerprint", key) for key in _WIDENED)):
        (old, no_old), (own, no_own) = descend(inherited, names), descend(top, names)
        if no_own or (no_old and names is _TARGETS):
            continue
        span = find_span(top, names, key=True)
        before, after, last = ([] if no_old else _names(old)), _names(own), descend(tree, names)[0]
        is_tuned = names is not _TARGETS and old.source.file.startswith(PACK_PREFIX)
        if (
            not is_tuned
            and isinstance(own, SequenceNode)
            and (gone := _missing(before, after, last))
        ):
            message = f"this leaves out {_quote_all(gone)} of {old.source.file}"
            yield Finding(span, message, "list them too, or ignore this with a reason")
        asking = _find_asking(inherited)
        if (
            names is not _TARGETS
            and asking is not None
            and (added := _missing(_names(last), before))
        ):
            what = _WIDENED[str(names[-1])] + _quote_all(added)
            message = f"an approval of the inherited `{asking}` now holds for any {what}"
            yield Finding(span, message, "ignore this with a reason if none of them matters there")


def check_lists(context: LintContext, step: LayerStep) -> Iterator[Finding]:
    """Report items taken from an inherited list that selects calls, or added where it exempts."""
    own, old = step.layer.get("lists"), step.inherited.get("lists")
    if not isinstance(own, MappingNode) or not isinstance(old, MappingNode):
        return
    merged = merge_layer(step.inherited, step.layer, step.pinned)[0]
    for name in own:
        before, (after, _) = old.get(name), descend(merged, ("lists", name))
        if before is None or before.source.file.startswith(PACK_PREFIX):
            continue
        items, new_items = _names(before), _names(after)
        last = context.merged.node(("lists", name))
        exempts = set(_find_uses(context, merged, name, ()))
        changes = []
        if exempts != {True}:
            changes.append(("takes {} from", _missing(items, new_items, last)))
        if True in exempts:
            changes.append(("adds {} to", _missing(new_items, items)))
        for verb, changed in changes:
            if not changed:
                continue
            message = (
                f"this {verb.format(_quote_all(changed))} `lists.{name}` of {before.source.file}"
            )
            help_text = "check the entries that read this list, or ignore this with a reason"
            yield Finding(find_span(step.layer, ("lists", name), key=True), message, help_text)


def _find_uses(
    context: LintContext, merged: MappingNode, name: str, seen: tuple[str, ...]
) -> Iterator[bool]:
    """Yield for each use of a list whether it exempts calls: in `unless`, or as `outside`."""
    reads = context.expressions.reads
    for path in context.cel_trees:
        if reads_field(reads(*path), f"lists.{name}"):
            yield path[-1] == "unless"
    for path in _find_items(merged, f"${name}", ()):
        if path[0] != "lists":
            yield path[-1] == "outside"
        elif path[1] not in (*seen, name):
            yield from _find_uses(context, merged, str(path[1]), (*seen, name))


def _find_items(node: Node, text: str, path: Path) -> Iterator[Path]:
    """Yield the path of each list in the policy that has an item."""
    if isinstance(node, MappingNode):
        for key, value in node.entries:
            yield from _find_items(value, text, (*path, key.text))
    elif isinstance(node, SequenceNode):
        if text in _names(node):
            yield path
        for index, item in enumerate(node.items):
            yield from _find_items(item, text, (*path, index))


def _find_asking(inherited: MappingNode) -> str | None:
    """Return the id of the first inherited entry that asks for an approval."""
    for section in ("rules", "budgets"):
        entries = inherited.get(section)
        for key, entry in entries.entries if isinstance(entries, MappingNode) else ():
            if not isinstance(entry, MappingNode):
                continue
            effect = entry.get("effect")
            if "ask_at" in entry or (effect is not None and to_plain(effect) == "ask"):
                return key.text
    return None


def _quote_all(names: list[str]) -> str:
    return ", ".join(map(quote_text, names))


def _names(node: Node) -> list[str]:
    """Return the items of a list, or the keys of a map."""
    if isinstance(node, MappingNode):
        return list(node)
    items = node.items if isinstance(node, SequenceNode) else ()
    return [item.text for item in items if isinstance(item, ScalarNode)]


def _missing(names: list[str], others: list[str], last: Node | None = None) -> list[str]:
    """Return the names that are not among `others`, if these are known, nor in the final list."""
    if any(other.startswith("$") for other in others):
        return []
    kept = {*others, *(_names(last) if last is not None else ())}
    return [name for name in names if name not in kept]
