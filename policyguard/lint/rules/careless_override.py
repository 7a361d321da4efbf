"""An entry that replaces an inherited one of the same id, and has nothing to do with it.

In maps the same id replaces the whole entry, and in first-match lists too. Who names a new rule as
an inherited one is named, takes that one away without a word. Such an override is told by what the
two are about: other tools, another kind of budget, a pattern that finds none of the old examples.

Avoid:

    # the base has `limit-calls: {tools: [deploy], …}`
    rules: {limit-calls: {tools: [search], when: call.args.n > 10}}

Prefer a name of its own, or `disable` with a reason:

    rules: {limit-searches: {tools: [search], when: call.args.n > 10}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.selectors import globs_overlap
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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding

_SELECTORS = ("tools", "servers", "classes", "agents")
_KINDS = frozenset({"calls", "tokens", "cost", "time", "concurrent", "sum"})


def check(subject: LintContext) -> Iterator[Finding]:
    """Overrides of the top layer that share nothing with what they replace."""
    top = subject.merged.top_layer
    for path, old, new in _overrides(top, subject.merged.inherited):
        why = _other_calls(old, new) or _other_kind(path, old, new) or _other_texts(path, old, new)
        if why:
            id_ = path[-1] if isinstance(path[-1], str) else _id(new)
            message = f"this replaces the inherited `{id_}`, and {why}"
            span = find_span(top, path if isinstance(path[-1], str) else (*path, "id"), key=True)
            yield Finding(span, message, "give it an id of its own, or `disable` the inherited one")


def _overrides(
    top: MappingNode, inherited: MappingNode
) -> Iterator[tuple[Path, MappingNode, MappingNode]]:
    """Entries with the id of an inherited one: the path, the old entry and the new."""
    for section in ("rules", "budgets", "patterns"):
        new, old = top.get(section), inherited.get(section)
        if isinstance(new, MappingNode) and isinstance(old, MappingNode):
            for key, value in new.entries:
                before = old.get(key.text)
                if isinstance(value, MappingNode) and isinstance(before, MappingNode):
                    yield (section, key.text), before, value
    new, old = top.get("signatures"), inherited.get("signatures")
    if isinstance(new, SequenceNode) and isinstance(old, SequenceNode):
        known = {_id(item): item for item in old.items if isinstance(item, MappingNode)}
        for number, item in enumerate(new.items):
            before = known.get(_id(item))
            if isinstance(item, MappingNode) and before is not None:
                yield ("signatures", number), before, item


def _other_calls(old: MappingNode, new: MappingNode) -> str:
    """Which selector of both names nothing that the other names."""
    for selector in _SELECTORS:
        before, now = _names(old.get(selector)), _names(new.get(selector))
        if before and now and not any(globs_overlap(one, other) for one in before for other in now):
            return f"that one is about other {selector}: {', '.join(f'`{one}`' for one in before)}"
    return ""


def _other_kind(path: Path, old: MappingNode, new: MappingNode) -> str:
    """Whether a budget counts something else."""
    if path[0] != "budgets":
        return ""
    before, now = ([key for key in entry if key in _KINDS] for entry in (old, new))
    return f"that one counts `{before[0]}`" if before and now and before != now else ""


def _other_texts(path: Path, old: MappingNode, new: MappingNode) -> str:
    """Whether a pattern finds nothing in any of the texts that the old one was made for."""
    pattern = new.get("pattern" if path[0] == "signatures" else "match")
    examples = old.get("examples")
    texts = examples.get("match") if isinstance(examples, MappingNode) else None
    if not isinstance(pattern, ScalarNode) or not isinstance(texts, SequenceNode):
        return ""
    found = [compile_regex(pattern.text).search(str(text)) for text in to_plain(texts)]
    return "its pattern finds none of the examples of that one" if not any(found) else ""


def _names(selector: Node | None) -> list[str]:
    if not isinstance(selector, SequenceNode):
        return []
    return [item.text for item in selector.items if isinstance(item, ScalarNode)]


def _id(item: Node) -> str:
    found = item.get("id") if isinstance(item, MappingNode) else None
    return found.text if isinstance(found, ScalarNode) else ""
