"""The policy's `learn` section, compiled."""

from __future__ import annotations

import msgspec

from policyguard.model.constraint import Constraint, Direction


class Decay(msgspec.Struct, frozen=True):
    """How a constraint fades. Durations are nanoseconds; None: never.

    A constraint whose confidence has fallen to `probe_below` admits a probe, whose outcome confirms
    or lifts it.
    """

    half_life: int | None
    lifetime: int | None
    probe_below: float
    forget_on_success: bool

    def confidence(self, constraint: Constraint, at: int | None) -> float:
        """Return the confidence: 1 when confirmed or without times, halved each half-life."""
        confirmed = constraint.confirmed_at
        if self.half_life is None or at is None or confirmed is None:
            return 1.0
        return float(0.5 ** (max(0, at - confirmed) / self.half_life))

    def is_expired(self, constraint: Constraint, at: int | None) -> bool:
        """Whether the constraint's lifetime is over."""
        confirmed = constraint.confirmed_at
        if self.lifetime is None or at is None or confirmed is None:
            return False
        return at - confirmed >= self.lifetime


class LearnSettings(msgspec.Struct, frozen=True):
    """How one entry of the policy learns from failures.

    `max_constraints` caps those of one scope; when full, nothing new is learned, so invented
    failures cannot evict real constraints. With `resets_on_change` a state change restarts counts
    and suspends constraints, with `same_error` another error restarts counts.
    """

    corroborate: int
    resets_on_change: bool
    max_constraints: int | None
    decay: Decay
    direction: Direction = "exact"
    same_error: bool = False
