"""The confidence of constraints."""

from __future__ import annotations

from policyguard.learned.learn_settings import Decay
from policyguard.model.constraint import Constraint


def confidence(constraint: Constraint, decay: Decay, at: int | None) -> float:
    """Return the confidence: 1 when confirmed or without times, halved each half-life."""
    confirmed = constraint.confirmed_at
    if decay.half_life is None or at is None or confirmed is None:
        return 1.0
    return float(0.5 ** (max(0, at - confirmed) / decay.half_life))


def is_expired(constraint: Constraint, decay: Decay, at: int | None) -> bool:
    """Whether the constraint's lifetime is over."""
    confirmed = constraint.confirmed_at
    if decay.lifetime is None or at is None or confirmed is None:
        return False
    return at - confirmed >= decay.lifetime


def is_due_for_probe(constraint: Constraint, decay: Decay, at: int | None) -> bool:
    """Whether the confidence is low enough to admit a probe."""
    if decay.half_life is None:
        return False
    return confidence(constraint, decay, at) <= decay.probe_below
