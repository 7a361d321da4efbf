"""An entry that replaces an unrelated inherited entry of the same id.

An entry replaces the inherited entry of the same id as a whole. If a new rule happens to reuse an
inherited id, the inherited rule is silently lost. The two count as unrelated if they select
different tools, count different things, or if the new pattern matches none of the old examples.

Avoid:

    # the base has `limit-calls: {tools: [deploy], …}`
    rules: {limit-calls: {tools: [search], when: call.args.n > 10}}

Prefer an id of its own, or `disable` with a reason:

    rules: {limit-searches: {tools: [search], when: call.args.n > 10}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.selectors.selector import globs_overlap, tool_globs_overlap
from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    Path,
    ScalarNode,
    SequenceNode,
    to_plain,
)
from policyguard.lint.analysis.patterns import compile_regex
from policyguard.lint.analysis.yaml_entries import entry_id
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_SELECTORS = ("tools", "servers", "classes", "agents")
_BUDGET_KINDS = frozenset(
    {"calls", "tokens", "cost", "time", "concurrent", "model_calls", "sum", "distinct"}
)


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries of the top layer that share nothing with the entry they replace."""
    top = context.merged.top_layer
    for path, old, new in _overrides(top, context.merged.inherited):
        difference = (
            _selector_difference(old, new)
            or _kind_difference(path, old, new)
            or _example_difference(path, old, new)
        )
        if difference:
            id_ = path[-1] if isinstance(path[-1], str) else entry_id(new)
            message = f"this replaces the unrelated inherited `{id_}`: {difference}"
            span = find_span(top, path if isinstance(path[-1], str) else (*path, "id"), key=True)
            yield Finding(span, message, "choose another id, or `disable` the inherited entry")


def _overrides(
    top: MappingNode, inherited: MappingNode
) -> Iterator[tuple[Path, MappingNode, MappingNode]]:
    """Yield the path, the inherited and the new entry of each override."""
    for section in ("rules", "budgets", "patterns"):
        new, old = top.get(section), inherited.get(section)
        if isinstance(new, MappingNode) and isinstance(old, MappingNode):
            for key, value in new.entries:
                replaced = old.get(key.text)
                if isinstance(value, MappingNode) and isinstance(replaced, MappingNode):
                    yield (section, key.text), replaced, value
    new, old = top.get("signatures"), inherited.get("signatures")
    if isinstance(new, SequenceNode) and isinstance(old, SequenceNode):
        old_by_id = {entry_id(item): item for item in old.items if isinstance(item, MappingNode)}
        for index, item in enumerate(new.items):
            replaced = old_by_id.get(entry_id(item))
            if isinstance(item, MappingNode) and replaced is not None:
                yield ("signatures", index), replaced, item


def _selector_difference(old: MappingNode, new: MappingNode) -> str:
    """Return how the entries' selectors differ if they never overlap, else an empty text."""
    for selector in _SELECTORS:
        before, after = _selector_items(old.get(selector)), _selector_items(new.get(selector))
        overlaps = tool_globs_overlap if selector == "tools" else globs_overlap
        if before and after and not any(overlaps(a, b) for a in before for b in after):
            return f"it covers other {selector}: {', '.join(map(quote_text, before))}"
    return ""


def _kind_difference(path: Path, old: MappingNode, new: MappingNode) -> str:
    """Return what the inherited budget counts if this one counts something else."""
    if path[0] != "budgets":
        return ""
    before, after = ([key for key in entry if key in _BUDGET_KINDS] for entry in (old, new))
    return f"it counts `{before[0]}`" if before and after and before != after else ""


def _example_difference(path: Path, old: MappingNode, new: MappingNode) -> str:
    """Return a reason if a pattern matches none of the inherited pattern's examples."""
    pattern = new.get("pattern" if path[0] == "signatures" else "match")
    examples = old.get("examples")
    texts = examples.get("match") if isinstance(examples, MappingNode) else None
    if not isinstance(pattern, ScalarNode) or not isinstance(texts, SequenceNode):
        return ""
    search = compile_regex(pattern.text).search
    matched = any(search(str(text)) for text in to_plain(texts))
    return "" if matched else "the new pattern matches none of its examples"


def _selector_items(selector: Node | None) -> list[str]:
    if not isinstance(selector, SequenceNode):
        return []
    return [item.text for item in selector.items if isinstance(item, ScalarNode)]
