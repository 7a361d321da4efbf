"""Check marks: keys that do nothing, uses that cannot work, and the marks of examples."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Constant,
    Expr,
    Identifier,
    Index,
    Select,
    iter_children,
)
from policyguard.compiler.build.entry_paths import mark_events, rule_examples
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.entry import Example
from policyguard.model.policy import Policy

_DECLARE = "declare it: `marks: {{{}: {{set: {{…}}}}}}`"


def check_marks(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report keys of marks without effect, and wrong marks in examples."""
    for mark in policy.marks:
        if not mark.is_keyed and merged.has(("marks", mark.id, "keep")):
            message = "`keep` has no effect here, because the mark has no `key`"
            path: Path = ("marks", mark.id, "keep")
            yield merged.diagnostic("reference/no-effect", message, path, key=True)
    for mark, _, event, path in mark_events(policy):
        if event.key is not None and not mark.is_keyed:
            message = "`key` has no effect here, because the mark has no `key`"
            hint = "give the mark a `key`, or remove this one"
            yield merged.diagnostic(
                "reference/no-effect", message, (*path, "key"), key=True, hint=hint
            )
    for _, example, _, path in rule_examples(policy):
        yield from _check_example(example, (*path, "marks"), policy, merged)


def _check_example(
    example: Example, path: Path, policy: Policy, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    marks = {mark.id: mark for mark in policy.marks}
    listed = not isinstance(example.marks, dict)
    for index, name in enumerate(example.marks):
        place = (*path, index if listed else name)
        mark = marks.get(name)
        if mark is None:
            if merged.is_complete and name not in merged.broken_names("marks"):
                hint = did_you_mean(name, marks) or _DECLARE.format(name)
                message = f"unknown mark {quote_text(name)}"
                yield merged.diagnostic(
                    "reference/unknown-mark", message, place, key=not listed, hint=hint
                )
            continue
        has_keys = isinstance(example.marks, dict) and example.marks[name] is not True
        if has_keys is not mark.is_keyed:
            message, hint = f"the mark `{name}` has no keys", f"write `[{name}]`"
            if mark.is_keyed:
                message = f"the mark `{name}` has keys: say which are set"
                hint = f"write `{{{name}: [KEY]}}`"
            yield merged.diagnostic("reference/mark", message, place, hint=hint)


def check_mark_uses(
    policy: Policy, merged: MergedPolicy, expressions: Expressions
) -> Iterator[Diagnostic]:
    """Report expressions that would look into the keys of a mark: only fingerprints are kept."""
    keyed = {mark.id for mark in policy.marks if mark.is_keyed}
    for path, program in expressions if keyed else ():
        if not reads_field(program.reads, "mark"):
            continue
        for name, node in _opaque_uses(program.tree, keyed):
            text = merged.node(path)
            span = merged.span_of(path)
            if isinstance(text, ScalarNode):
                span = text.subspan(node.span.start, node.span.end)
            message = f"`mark.{name}` can only be asked with `in` and `size`"
            hint = f"write `KEY in mark.{name}`; of keys, only fingerprints are kept"
            yield merged.diagnostic("reference/mark-keys", message, span, hint=hint)


def _opaque_uses(
    node: Expr, keyed: set[str], *, is_asked: bool = False
) -> Iterator[tuple[str, Expr]]:
    """Yield each use of a keyed mark but as the right side of `in`, or in `size`, with its name."""
    name = _mark_name(node)
    if name is not None:
        if name in keyed and not is_asked:
            yield name, node
        return
    for child in iter_children(node):
        asked = (isinstance(node, Binary) and node.operator == "in" and child is node.right) or (
            isinstance(node, Call) and node.name == "size"
        )
        yield from _opaque_uses(child, keyed, is_asked=asked)


def _mark_name(node: Expr) -> str | None:
    """Return the mark that `mark.ID` or `mark['ID']` names."""
    if not isinstance(node, Select | Index) or not (
        isinstance(node.operand, Identifier) and node.operand.name == "mark"
    ):
        return None
    if isinstance(node, Select):
        return node.field
    key = node.key.value if isinstance(node.key, Constant) else None
    return key if isinstance(key, str) else None
