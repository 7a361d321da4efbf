"""`refusals`: an agent that does nothing but run into refusals."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitSettings
from policyguard.evaluator.messages import format_streak
from policyguard.model.decision import Violation


class RefusalStreak:
    """The refused attempts in a row, so far."""

    __slots__ = ("batch", "count")

    def __init__(self) -> None:
        self.count = 0
        self.batch = ""

    def add(self, batch: str) -> None:
        """One more attempt was refused."""
        if not batch or batch != self.batch:
            self.count += 1
        self.batch = batch

    def reset(self) -> None:
        """A call got through, or whoever is refused is counted anew."""
        self.count = 0
        self.batch = ""


class RefusalsChecker:
    """Answers the refused attempt that comes after `max` others in a row, by default with a halt.

    It says nothing to a call that nothing else refuses, so that an agent which changes course goes
    on. An admitted call ends the row; the parallel calls of one batch count once.
    """

    __slots__ = ("escalation", "id", "max", "observe", "per_turn")

    def __init__(self, settings: LimitSettings, *, max: int) -> None:  # noqa: A002 - the field's name
        self.id = settings.id
        self.escalation = settings.escalation
        self.observe = settings.observe
        self.per_turn = settings.per_turn
        self.max = max

    def new_tracker(self) -> RefusalStreak:
        """An empty row."""
        return RefusalStreak()

    def evaluate(self, tracker: RefusalStreak, attempt: Attempt) -> Violation | None:
        """What is to be said of one more refused attempt."""
        if attempt.batch and attempt.batch == tracker.batch:
            count = tracker.count - 1  # this attempt's batch has been counted
        else:
            count = tracker.count
        effect = self.escalation.effect_at(count + 1, limit_reached=count >= self.max)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "refusals",
            f"calls have been refused {format_streak(count)} before this one",
            "stop calling tools: say what you wanted to do and what stood in the way",
            count,
            self.max,
        )
