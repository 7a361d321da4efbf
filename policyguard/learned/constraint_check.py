"""Whether a constraint binds a call, and how surely."""

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
    """What a constraint says to a call: refuse it, or let it through as a trial, or nothing."""

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
    """Ask a constraint about a call with its key.

    `changed`: since the constraint was confirmed, this session has changed something by another
    call, which may have mended the cause. `patience` is how long (ns) a trial may take.
    """
    weakening = settings.decay
    if is_expired(constraint, weakening, at) or (changed and settings.resets_on_change):
        return NOT_BINDING
    if constraint.points and (
        count_dominated(point, constraint.points, constraint.direction) < settings.corroborate
    ):
        return NOT_BINDING
    sure = confidence(constraint, weakening, at)
    if is_due_for_probe(constraint, weakening, at) and not constraints.is_probing(
        constraint.id, at, probe_timeout
    ):
        return CheckResult(refused=False, probe=True, confidence=sure)
    return CheckResult(refused=True, probe=False, confidence=sure)
