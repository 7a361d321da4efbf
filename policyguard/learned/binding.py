"""Whether a constraint binds a call, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policyguard.learned.confidence import confidence, expired, weak
from policyguard.learned.memory import Memory
from policyguard.learned.region import standing
from policyguard.learned.teaching import Teaching
from policyguard.model.constraint import Constraint


class Answer(msgspec.Struct, frozen=True):
    """What a constraint says to a call: refuse it, or let it through as a trial, or nothing."""

    refused: bool
    trial: bool
    confidence: float


FREE = Answer(refused=False, trial=False, confidence=0.0)


def ask(
    memory: Memory,
    constraint: Constraint,
    teaching: Teaching,
    point: Mapping[str, Any],
    *,
    changed: bool,
    at: int | None,
    patience: int,
) -> Answer:
    """Ask a constraint about a call with its key.

    `changed`: since the constraint was confirmed, this session has changed something by another
    call, which may have mended the cause. `patience` is how long (ns) a trial may take.
    """
    weakening = teaching.weakening
    if expired(constraint, weakening, at) or (changed and teaching.reset):
        return FREE
    if constraint.points and (
        standing(point, constraint.points, constraint.direction) < teaching.corroborate
    ):
        return FREE
    sure = confidence(constraint, weakening, at)
    if weak(constraint, weakening, at) and not memory.on_trial(constraint.id, at, patience):
        return Answer(refused=False, trial=True, confidence=sure)
    return Answer(refused=True, trial=False, confidence=sure)
