"""`refusals`: an agent whose attempts are refused again and again."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitSettings
from policyguard.evaluator.messages import format_streak
from policyguard.model.decision import Violation


class RefusalStreak:
    """Consecutive refused attempts."""

    __slots__ = ("batch", "count")

    def __init__(self) -> None:
        self.count = 0
        self.batch = ""

    def add(self, batch: str) -> None:
        """Count one more refused attempt."""
        if not batch or batch != self.batch:
            self.count += 1
        self.batch = batch

    def reset(self) -> None:
        """End the streak."""
        self.count = 0
        self.batch = ""


class RefusalsChecker:
    """Refuses, by default with a halt, the refused attempt that follows `max` consecutive others.

    A call that nothing else refuses never violates it, so an agent that changes course goes on. An
    admitted call ends the streak; the parallel calls of one batch count once.
    """

    __slots__ = ("escalation", "id", "max", "observe", "per_turn")

    def __init__(self, settings: LimitSettings, *, max: int) -> None:  # noqa: A002 - the field's name
        self.id = settings.id
        self.escalation = settings.escalation
        self.observe = settings.observe
        self.per_turn = settings.per_turn
        self.max = max

    def new_tracker(self) -> RefusalStreak:
        """Return an empty streak."""
        return RefusalStreak()

    def evaluate(self, tracker: RefusalStreak, attempt: Attempt) -> Violation | None:
        """Return the violation of one more refused attempt."""
        is_counted = bool(attempt.batch) and attempt.batch == tracker.batch
        count = tracker.count - 1 if is_counted else tracker.count
        effect = self.escalation.effect_at(count + 1, limit_reached=count >= self.max)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "refusals",
            f"calls have been refused {format_streak(count)} before this one",
            "stop calling tools: report what you tried to do and what prevented it",
            count,
            self.max,
        )
