"""A policy in force, put together from its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from policyguard.compiler.build import build, fingerprinter_for
from policyguard.compiler.expressions import Expressions
from policyguard.compiler.inputs import Inputs
from policyguard.compiler.learning import LearnEntry, entries
from policyguard.compiler.radius import RadiusEntry, schedules
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy

if TYPE_CHECKING:
    from policyguard.compiler.layers import Layered


class Compiled(msgspec.Struct, frozen=True, eq=False, dict=True):
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
    _lay: Callable[[], Layered]

    @cached_property
    def layered(self) -> Layered:
        """Where each entry of the policy stands.

        A policy that came out of the cache is read once more. Raises `PolicyError` where its files
        say something else by now.
        """
        return self._lay()


def put_together(
    policy: Policy,
    expressions: Expressions,
    diagnostics: tuple[Diagnostic, ...],
    inputs: Inputs,
    lay: Callable[[], Layered],
) -> Compiled:
    """Make what judges calls from a policy without errors."""
    fingerprinter = fingerprinter_for(policy)
    return Compiled(
        evaluator=build(policy, expressions, fingerprinter),
        fingerprinter=fingerprinter,
        policy=policy,
        learning=entries(policy, expressions),
        radius=schedules(policy, expressions),
        diagnostics=diagnostics,
        expressions=expressions,
        inputs=inputs,
        _lay=lay,
    )
