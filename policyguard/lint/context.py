"""The input of a lint rule: a compiled policy, and which of its files to report about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from policyguard.cel.syntax.ast import Expr, TextSpan
from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Span
from policyguard.model.policy import Policy


@dataclass(frozen=True)
class LintContext:
    """A compiled policy, and the display names of the files that findings may be about.

    Other inherited files are analysed, but not reported.
    """

    compiled: CompiledPolicy
    own_files: frozenset[str]

    @property
    def policy(self) -> Policy:
        """The policy with all layers merged."""
        return self.compiled.policy

    @property
    def merged(self) -> MergedPolicy:
        """The merged policy's YAML, with sources."""
        return self.compiled.merged

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of calls."""
        return self.compiled.evaluator

    @property
    def expressions(self) -> Expressions:
        """The policy's compiled CEL."""
        return self.compiled.expressions

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
