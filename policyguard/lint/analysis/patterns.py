"""The RE2 patterns of a policy: signatures, named patterns, envelopes, and those in its CEL."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from policyguard.cel.syntax.tree import Call, Constant, Expr, iter_children
from policyguard.engines.regex import Regex
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.lint.context import LintContext
from policyguard.model.diagnostic import Span
from policyguard.model.entry import TextExamples

_NONE = TextExamples()

compile_regex = lru_cache(1024)(Regex)
"""A compiled pattern; several rules ask about the same ones."""


class Pattern(NamedTuple):
    """A pattern, and where it stands. `path` leads to the entry that it belongs to."""

    kind: Literal["signature", "pattern", "envelope", "condition"]
    text: str
    path: Path
    span: Span
    examples: TextExamples
    node: ScalarNode | None
    """The pattern's own value in the file; None where it stands inside of CEL."""

    def subspan(self, start: int, end: int) -> Span:
        """Where a stretch of the pattern stands."""
        return self.span if self.node is None else self.node.subspan(start, end)


def find_patterns(subject: LintContext) -> Iterator[Pattern]:
    """All patterns that findings may be about: not those that are inherited."""
    return (one for one in _all(subject) if one.span.file in subject.own_files)


def _all(subject: LintContext) -> Iterator[Pattern]:
    policy, layered = subject.policy, subject.merged
    for place, signature in enumerate(policy.signatures):
        path: Path = ("signatures", place)
        examples = signature.examples
        yield _of(subject, "signature", signature.pattern, path, (*path, "pattern"), examples)
    for name, pattern in policy.patterns.items():
        path = ("patterns", name)
        inner = (*path, "match") if layered.has((*path, "match")) else path
        yield _of(subject, "pattern", pattern.match, path, inner, pattern.examples)
    for place, envelope in enumerate(policy.outcomes.envelope):
        path = ("outcomes", "envelope", place)
        yield _of(subject, "envelope", envelope.pattern, path, (*path, "pattern"), _NONE)
    for path, tree in subject.cel_trees.items():
        for constant in _matched(tree):
            span = subject.subspan(path, constant.span)
            yield Pattern("condition", str(constant.value), path, span, _NONE, None)


def _of(
    subject: LintContext,
    kind: Literal["signature", "pattern", "envelope"],
    text: str,
    path: Path,
    inner: Path,
    examples: TextExamples,
) -> Pattern:
    node = subject.merged.node(inner)
    found = node if isinstance(node, ScalarNode) else None
    return Pattern(kind, text, path, subject.merged.span_of(inner), examples, found)


def _matched(node: Expr) -> Iterator[Constant]:
    """The literals that are given to `matches`."""
    if isinstance(node, Call) and node.name == "matches" and node.arguments:
        last = node.arguments[-1]
        if isinstance(last, Constant):
            yield last
    for child in iter_children(node):
        yield from _matched(child)
