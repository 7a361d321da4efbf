"""`no_progress`: results that the tool itself flags as not advancing, whatever the arguments."""

from __future__ import annotations

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_streak
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class NoProgressStreak(msgspec.Struct, eq=False):
    """The flagged results of one tool since it last advanced."""

    count: int = 0
    result_fingerprint: str = ""
    batch: str = ""


Streaks = dict[str, NoProgressStreak]


class NoProgressChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses a tool after `max` consecutive results flagged as not advancing.

    Only an unflagged success ends the streak, and a full one only if it has another result than the
    last flagged one; failures, pending results and those that the harness is to blame for change
    nothing. Parallel calls of one batch count once. At most `max_tools` are kept, the one flagged
    longest ago goes first.
    """

    counts_outcomes_only = True
    counts_calls = True
    judges_arguments = False

    max_tools: int

    def new_tracker(self) -> Streaks:
        """Return no streaks."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """Return the tool with its server."""
        return attempt.full_name

    def evaluate(
        self, tracker: Streaks, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of a tool whose streak is full."""
        streak = tracker.get(self.subject(attempt)) if tracker else None
        count = streak.count if streak is not None else 0
        if (count < self.min_count and not refused_count) or (not count and self.max):
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "no_progress",
            f"this tool has made no progress {format_streak(count)}" if count else NEVER_ALLOWED,
            "report what is missing instead of asking again, or try another tool",
            count,
            self.max,
        )

    def complete(self, tracker: Streaks, attempt: Attempt, outcome: Outcome) -> None:
        """Count a flagged result; end the streak with an advancing success."""
        if outcome.harness_flagged:
            return
        if outcome.advancing and not tracker:
            return
        name = self.subject(attempt)
        if outcome.advancing:
            streak = tracker.get(name)
            if (
                streak is not None
                and outcome.state == "success"
                and (
                    streak.count < self.max
                    or outcome.result_fingerprint != streak.result_fingerprint
                )
            ):
                del tracker[name]
            return
        streak = tracker.pop(name) if name in tracker else NoProgressStreak()
        tracker[name] = streak  # the latest to be flagged
        if not attempt.batch or attempt.batch != streak.batch or not streak.count:
            streak.count += 1
        streak.batch = attempt.batch
        streak.result_fingerprint = outcome.result_fingerprint
        if len(tracker) > self.max_tools:
            del tracker[next(iter(tracker))]

    def allow_retry(self, tracker: Streaks, subject: str) -> None:
        """Let a tool try once more."""
        streak = tracker.get(subject)
        if streak is not None:
            streak.count = min(streak.count, self.max - 1)
