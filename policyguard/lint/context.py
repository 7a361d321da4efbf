"""What a rule looks at: a policy that compiles, and which of its files are in question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from policyguard.cel.syntax.tree import Expr
from policyguard.cel.syntax.tree import TextSpan as Stretch
from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Span
from policyguard.model.policy import Policy


@dataclass(frozen=True)
class LintContext:
    """A compiled policy. `own` are the files that findings may be about, by their shown names.

    Whatever else the policy inherits is somebody else's: it is looked at, and not reported.
    """

    compiled: CompiledPolicy
    own_files: frozenset[str]

    @property
    def policy(self) -> Policy:
        """The policy with all layers merged."""
        return self.compiled.policy

    @property
    def merged(self) -> MergedPolicy:
        """Where each part of the policy stands."""
        return self.compiled.merged

    @property
    def evaluator(self) -> Evaluator:
        """What judges calls."""
        return self.compiled.evaluator

    @property
    def expressions(self) -> Expressions:
        """The policy's CEL, compiled."""
        return self.compiled.expressions

    @cached_property
    def cel_trees(self) -> dict[Path, Expr]:
        """The policy's CEL as trees, by path."""
        return {path: program.tree for path, program in self.expressions}

    def owns(self, path: Path) -> bool:
        """Whether the value at `path` (or the nearest around it) stands in a file in question."""
        return self.merged.origin(path) in self.own_files

    def subspan(self, path: Path, stretch: Stretch) -> Span:
        """Where a part of the CEL at `path` stands."""
        node = self.merged.node(path)
        if isinstance(node, ScalarNode):
            return node.subspan(stretch.start, stretch.end)
        return self.merged.span_of(path)
