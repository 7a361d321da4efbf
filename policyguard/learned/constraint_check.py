"""Checks of one constraint against a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policyguard.learned.constraint_set import ConstraintSet
from policyguard.learned.learn_settings import LearnSettings
from policyguard.learned.parameter_region import count_dominated
from policyguard.model.constraint import Constraint


class CheckResult(msgspec.Struct, frozen=True):
    """Whether a constraint refuses a call or admits it as a probe; neither if it is silent."""

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
    if decay.is_expired(constraint, at) or (changed and settings.resets_on_change):
        return NOT_BINDING
    if constraint.points and (
        count_dominated(point, constraint.points, constraint.direction) < settings.corroborate
    ):
        return NOT_BINDING
    confidence = decay.confidence(constraint, at)
    is_due = decay.half_life is not None and confidence <= decay.probe_below
    probe = is_due and not constraints.is_probing(constraint.id, at, probe_timeout)
    return CheckResult(refused=not probe, probe=probe, confidence=confidence)
