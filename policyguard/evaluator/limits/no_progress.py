"""`no_progress`: results that the tool itself flags as not advancing, whatever was asked."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker, LimitSettings
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_streak
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class NoProgressStreak:
    """The flagged results of one tool since it last advanced."""

    __slots__ = ("batch", "count", "result_fingerprint")

    def __init__(self) -> None:
        self.count = 0
        self.result_fingerprint = ""
        self.batch = ""


class NoProgressChecker(LimitChecker):
    """Refuses a tool after `max` results in a row that were flagged as not advancing.

    Only a success of the tool that is not flagged, and brings something else than the last flagged
    result, ends the row; a failure, a pending result and one that the harness is to blame for
    neither lengthen nor end it. The parallel calls of one batch count once. At most `most` tools
    are remembered, the one flagged longest ago is forgotten first.
    """

    __slots__ = ("max_tools",)

    def __init__(self, settings: LimitSettings, *, max: int, max_tools: int) -> None:  # noqa: A002 - the field's name
        super().__init__(settings, max, always_evaluated=False)
        self.max_tools = max_tools

    def new_tracker(self) -> dict[str, NoProgressStreak]:
        """No tool has been flagged."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """The tool, on its server."""
        return attempt.full_name

    def evaluate(
        self,
        tracker: dict[str, NoProgressStreak],
        attempt: Attempt,
        changes: StateChanges,
        refused_count: int,
    ) -> Violation | None:
        """Whether the tool's row is full."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        count = row.count if row is not None else 0
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
            "say what is missing instead of asking on, or try another tool",
            count,
            self.max,
        )

    def complete(
        self, tracker: dict[str, NoProgressStreak], attempt: Attempt, outcome: Outcome
    ) -> None:
        """A flagged result lengthens the row, an advancing success ends it."""
        if outcome.harness_flagged:
            return
        if outcome.advancing and not tracker:
            return
        name = self.subject(attempt)
        if outcome.advancing:
            row = tracker.get(name)
            if (
                row is not None
                and outcome.state == "success"
                and outcome.result_fingerprint != row.result_fingerprint
            ):
                del tracker[name]
            return
        row = tracker.pop(name) if name in tracker else NoProgressStreak()
        tracker[name] = row  # the latest to be flagged
        if not attempt.batch or attempt.batch != row.batch or not row.count:
            row.count += 1
        row.batch = attempt.batch
        row.result_fingerprint = outcome.result_fingerprint
        if len(tracker) > self.max_tools:
            del tracker[next(iter(tracker))]

    def allow_retry(self, tracker: dict[str, NoProgressStreak], subject: str) -> None:
        """Something else has advanced: the tool may try once more."""
        row = tracker.get(subject)
        if row is not None:
            row.count = min(row.count, self.max - 1)
