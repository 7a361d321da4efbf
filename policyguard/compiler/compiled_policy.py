"""The compiled policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from policyguard.compiler.build.evaluator import build_evaluator, build_fingerprinter
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.learning import LearnEntry, build_learn_entries
from policyguard.compiler.build.radius import RadiusEntry, build_radius_entries
from policyguard.compiler.inputs import Inputs
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy


class CompiledPolicy(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A compiled policy: evaluator, learning entries, radius schedules, and warnings.

    `fingerprinter` holds the key of the fingerprints, `expressions` the CEL by path, `inputs` the
    files and variables the policy was compiled from.
    """

    evaluator: Evaluator
    fingerprinter: Fingerprinter
    policy: Policy
    learning: dict[str, LearnEntry]
    radius: tuple[RadiusEntry, ...]
    diagnostics: tuple[Diagnostic, ...]
    expressions: Expressions
    inputs: Inputs
    _load_merged: Callable[[], MergedPolicy]

    @cached_property
    def merged(self) -> MergedPolicy:
        """The merged tree, with the source of each entry.

        Reads the files again for a cached policy. Raises `PolicyError` if they have changed.
        """
        return self._load_merged()


def assemble(
    policy: Policy,
    expressions: Expressions,
    diagnostics: tuple[Diagnostic, ...],
    inputs: Inputs,
    load_merged: Callable[[], MergedPolicy],
) -> CompiledPolicy:
    """Build a compiled policy from a policy without errors."""
    fingerprinter = build_fingerprinter(policy)
    return CompiledPolicy(
        evaluator=build_evaluator(policy, expressions, fingerprinter),
        fingerprinter=fingerprinter,
        policy=policy,
        learning=build_learn_entries(policy, expressions),
        radius=build_radius_entries(policy, expressions),
        diagnostics=diagnostics,
        expressions=expressions,
        inputs=inputs,
        _load_merged=load_merged,
    )
