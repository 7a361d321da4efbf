"""A policy in force, put together from its parts."""

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
    """A policy in force: what judges calls, what it was made from, and the warnings.

    `fingerprinter` holds the key of its fingerprints; `expressions` are its CEL by place, `inputs`
    are the files and variables that it was made from.
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
        """Where each entry of the policy stands.

        A policy that came out of the cache is read once more. Raises `PolicyError` where its files
        say something else by now.
        """
        return self._load_merged()


def assemble(
    policy: Policy,
    expressions: Expressions,
    diagnostics: tuple[Diagnostic, ...],
    inputs: Inputs,
    load_merged: Callable[[], MergedPolicy],
) -> CompiledPolicy:
    """Make what judges calls from a policy without errors."""
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
