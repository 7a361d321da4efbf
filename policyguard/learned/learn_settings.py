"""The policy's `learn` section, compiled: how many failures teach what, and how it weakens."""

from __future__ import annotations

import msgspec

from policyguard.model.constraint import Direction


class Decay(msgspec.Struct, frozen=True):
    """How a constraint loses its hold. Durations are nanoseconds; None: never.

    A ban whose confidence has fallen to `probation` lets one call through, and is confirmed or
    lifted by its outcome.
    """

    half_life: int | None
    lifetime: int | None
    probe_below: float
    forget_on_success: bool


class LearnSettings(msgspec.Struct, frozen=True):
    """What one entry of the policy learns from failures.

    `most` caps the constraints of one scope; where they are full nothing new is learned, so that
    invented failures cannot push real ones out. `reset` says that a change of state makes counts
    begin anew and puts bans on trial; `same_error` that another error of the same signature does.
    """

    corroborate: int
    resets_on_change: bool
    max_constraints: int | None
    decay: Decay
    direction: Direction = "exact"
    same_error: bool = False
