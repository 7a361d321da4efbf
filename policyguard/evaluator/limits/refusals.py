"""`refusals`: an agent whose attempts are refused again and again."""

from __future__ import annotations

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitSettings
from policyguard.evaluator.messages import format_streak
from policyguard.model.decision import Violation


class RefusalStreak(msgspec.Struct, eq=False):
    """Consecutive refused attempts."""

    count: int = 0
    batch: str = ""

    def add(self, batch: str) -> None:
        """Count one more refused attempt."""
        if not batch or batch != self.batch:
            self.count += 1
        self.batch = batch

    def reset(self) -> None:
        """End the streak."""
        self.count = 0
        self.batch = ""


class RefusalsChecker(LimitSettings, eq=False, kw_only=True):
    """Refuses, by default with a halt, the refused attempt that follows `max` consecutive others.

    A call that nothing else refuses never violates it, so an agent that changes course goes on. An
    admitted call ends the streak; the parallel calls of one batch count once.
    """

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
