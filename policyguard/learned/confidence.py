"""How sure a constraint still is."""

from __future__ import annotations

from policyguard.learned.teaching import Weakening
from policyguard.model.constraint import Constraint


def confidence(constraint: Constraint, weakening: Weakening, at: int | None) -> float:
    """From 1 (just confirmed) towards 0; halved each half-life. 1 where there is no time."""
    confirmed = constraint.confirmed_at
    if weakening.half_life is None or at is None or confirmed is None:
        return 1.0
    return float(0.5 ** (max(0, at - confirmed) / weakening.half_life))


def expired(constraint: Constraint, weakening: Weakening, at: int | None) -> bool:
    """Whether the constraint has lived its time."""
    confirmed = constraint.confirmed_at
    if weakening.lives is None or at is None or confirmed is None:
        return False
    return at - confirmed >= weakening.lives


def weak(constraint: Constraint, weakening: Weakening, at: int | None) -> bool:
    """Whether the constraint is due for a trial."""
    if weakening.half_life is None:
        return False
    return confidence(constraint, weakening, at) <= weakening.probation
