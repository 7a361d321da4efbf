"""The interface of a lint rule: a module with a docstring and a `check` function, and its input.

The docstring is the rule's page, the module's name its code: `rules/patterns/bare_number.py`
reports `lint/bare-number`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from inspect import cleandoc
from typing import NamedTuple, Protocol

from policyguard.cel.syntax.ast import Expr, TextSpan
from policyguard.compiler import CompiledPolicy
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.model.diagnostic import Edit, Severity, Span


class LintContext:
    """A compiled policy, and the display names of the files that findings may be about.

    Other inherited files are analysed, but not reported. `now` is the time (ns) that exceptions
    expire by.
    """

    def __init__(
        self, compiled: CompiledPolicy, own_files: frozenset[str], now: int | None = None
    ) -> None:
        self.now = time.time_ns() if now is None else now
        self.policy, self.merged = compiled.policy, compiled.merged
        self.evaluator, self.expressions = compiled.evaluator, compiled.expressions
        self.own_files = own_files

    @cached_property
    def cel_trees(self) -> dict[Path, Expr]:
        """The policy's CEL as syntax trees, by path."""
        return {path: program.tree for path, program in self.expressions}

    def owns(self, path: Path) -> bool:
        """Return whether the value at `path`, or its nearest ancestor, is in one of `own_files`."""
        return self.merged.origin(path) in self.own_files

    def subspan(self, path: Path, part: TextSpan) -> Span:
        """Return the span of a part of the CEL at `path`."""
        node = self.merged.node(path)
        if isinstance(node, ScalarNode):
            return node.subspan(part.start, part.end)
        return self.merged.span_of(path)


class Finding(NamedTuple):
    """A problem that a rule found in a policy.

    `help` says what to write instead. `edits` apply an unambiguous fix. `in_any_layer` reports it
    also in a file of the user's that is only inherited.
    """

    span: Span
    message: str
    help: str | None = None
    edits: tuple[Edit, ...] = ()
    severity: Severity = "warning"
    in_any_layer: bool = False


class LintRule(Protocol):
    """A module in a folder of `rules/`."""

    __name__: str
    __doc__: str | None

    def check(self, context: LintContext, /) -> Iterator[Finding]:
        """Yield the problems in a policy."""
        ...


def rule_code(rule: LintRule) -> str:
    """Return the code of a rule's findings, such as `lint/bare-number`."""
    return "lint/" + rule.__name__.rpartition(".")[2].replace("_", "-")


def rule_page(rule: LintRule) -> str:
    """Return the text that `policyguard explain` prints."""
    return cleandoc(rule.__doc__ or "")
