"""The RE2 patterns of a policy: in signatures, named patterns, envelopes and CEL."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from policyguard.cel.syntax.ast import Call, Constant, Expr, iter_children
from policyguard.engines.regex import Regex
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.lint.rule import LintContext
from policyguard.model.diagnostic import Span
from policyguard.model.entry import TextExamples

_NO_EXAMPLES = TextExamples()

compile_regex = lru_cache(1024)(Regex)
"""Compile a pattern, cached because several rules use the same patterns."""


class Pattern(NamedTuple):
    """A pattern, its entry's path, and its YAML node unless it is part of a CEL expression."""

    kind: Literal["signature", "pattern", "envelope", "condition"]
    text: str
    path: Path
    span: Span
    examples: TextExamples
    node: ScalarNode | None

    def subspan(self, start: int, end: int) -> Span:
        """Return the span of a part of the pattern."""
        return self.span if self.node is None else self.node.subspan(start, end)


def find_patterns(context: LintContext) -> Iterator[Pattern]:
    """Yield the patterns in the context's own files."""
    return (found for found in _all_patterns(context) if found.span.file in context.own_files)


def _all_patterns(context: LintContext) -> Iterator[Pattern]:
    policy = context.policy
    for index, one in enumerate(policy.signatures):
        path: Path = ("signatures", index)
        yield _pattern(context, "signature", one.pattern, path, "pattern", one.examples)
    for name, named in policy.patterns.items():
        path = ("patterns", name)
        yield _pattern(context, "pattern", named.match, path, "match", named.examples)
    for index, envelope in enumerate(policy.outcomes.envelope):
        path = ("outcomes", "envelope", index)
        yield _pattern(context, "envelope", envelope.pattern, path, "pattern", _NO_EXAMPLES)
    for path, tree in context.cel_trees.items():
        for constant in _matches_arguments(tree):
            span = context.subspan(path, constant.span)
            yield Pattern("condition", str(constant.value), path, span, _NO_EXAMPLES, None)


def _pattern(
    context: LintContext,
    kind: Literal["signature", "pattern", "envelope"],
    text: str,
    path: Path,
    key: str,
    examples: TextExamples,
) -> Pattern:
    text_path = (*path, key) if context.merged.has((*path, key)) else path
    node = context.merged.node(text_path)
    scalar = node if isinstance(node, ScalarNode) else None
    return Pattern(kind, text, path, context.merged.span_of(text_path), examples, scalar)


def _matches_arguments(node: Expr) -> Iterator[Constant]:
    """Yield the literal arguments of `matches`."""
    if isinstance(node, Call) and node.name == "matches" and node.arguments:
        last = node.arguments[-1]
        if isinstance(last, Constant):
            yield last
    for child in iter_children(node):
        yield from _matches_arguments(child)
