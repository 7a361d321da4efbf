"""Checks of one constraint against a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policyguard.learned.confidence import confidence, is_due_for_probe, is_expired
from policyguard.learned.constraint_set import ConstraintSet
from policyguard.learned.learn_settings import LearnSettings
from policyguard.learned.parameter_region import count_dominated
from policyguard.model.constraint import Constraint


class CheckResult(msgspec.Struct, frozen=True):
    """Whether a constraint refuses a call or admits it as a probe; neither if it does not apply."""

    refused: bool
    probe: bool
    confidence: float


NOT_BINDING = CheckResult(refused=False, probe=False, confidence=0.0)


def check(
    constraints: ConstraintSet,
    constraint: Constraint,
    settings: LearnSettings,
    point: Mapping[str, Any],
    *,
    changed: bool,
    at: int | None,
    probe_timeout: int,
) -> CheckResult:
    """Check a call that has the constraint's key.

    `changed`: another call has changed state since the constraint was confirmed, and may have fixed
    the cause. `probe_timeout` is how long (ns) a probe may take.
    """
    decay = settings.decay
    if is_expired(constraint, decay, at) or (changed and settings.resets_on_change):
        return NOT_BINDING
    if constraint.points and (
        count_dominated(point, constraint.points, constraint.direction) < settings.corroborate
    ):
        return NOT_BINDING
    current = confidence(constraint, decay, at)
    if is_due_for_probe(constraint, decay, at) and not constraints.is_probing(
        constraint.id, at, probe_timeout
    ):
        return CheckResult(refused=False, probe=True, confidence=current)
    return CheckResult(refused=True, probe=False, confidence=current)
