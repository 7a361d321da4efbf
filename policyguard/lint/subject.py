"""What a rule looks at: a policy that compiles, and which of its files are in question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from policyguard.cel.tree import Node
from policyguard.cel.tree import Span as Stretch
from policyguard.compiler import Compiled
from policyguard.compiler.expressions import Expressions
from policyguard.compiler.layers import Layered
from policyguard.engines.yaml_tree import Path, Scalar
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Span
from policyguard.model.policy import Policy


@dataclass(frozen=True)
class Subject:
    """A compiled policy. `own` are the files that findings may be about, by their shown names.

    Whatever else the policy inherits is somebody else's: it is looked at, and not reported.
    """

    compiled: Compiled
    own: frozenset[str]

    @property
    def policy(self) -> Policy:
        """The policy with all layers merged."""
        return self.compiled.policy

    @property
    def layered(self) -> Layered:
        """Where each part of the policy stands."""
        return self.compiled.layered

    @property
    def evaluator(self) -> Evaluator:
        """What judges calls."""
        return self.compiled.evaluator

    @property
    def expressions(self) -> Expressions:
        """The policy's CEL, compiled."""
        return self.compiled.expressions

    @cached_property
    def conditions(self) -> dict[Path, Node]:
        """The policy's CEL as trees, by path."""
        return {path: program.tree for path, program in self.expressions}

    def owns(self, path: Path) -> bool:
        """Whether the value at `path` (or the nearest around it) stands in a file in question."""
        return self.layered.origin(path) in self.own

    def stretch(self, path: Path, stretch: Stretch) -> Span:
        """Where a part of the CEL at `path` stands."""
        node = self.layered.node(path)
        if isinstance(node, Scalar):
            return node.stretch(stretch.start, stretch.end)
        return self.layered.where(path)
