"""`failures`: failure after failure, whatever the arguments."""

from __future__ import annotations

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_streak
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class FailureStreak(msgspec.Struct, eq=False):
    """Consecutive failures: how many, with which error, of which tools and batches."""

    error_fingerprint: str
    count: int = 0
    batches: dict[str, None] = msgspec.field(default_factory=dict)
    tools: dict[str, None] = msgspec.field(default_factory=dict)


FailureStreaks = dict[str, FailureStreak]


class FailuresChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses calls after `max` consecutive failures; parallel calls of one batch count once.

    With `same_error` only the same error (masked) continues a streak, with `signature` only
    failures of that signature; then only the tools of the streak are refused, so that another
    tool's success can end it. Pending results, and those that the host flags as the harness's
    fault, change nothing. At most `max_names` tools and batches are kept, the first goes first.
    """

    counts_outcomes_only = True

    same_error: bool
    signature: str
    max_names: int

    def new_tracker(self) -> FailureStreaks:
        """Return no streak. There is at most one, under an empty name."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """Return one subject for all attempts; with one error or signature, the tool."""
        return attempt.full_name if self.same_error or self.signature else ""

    def evaluate(
        self, tracker: FailureStreaks, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of an attempt that a full streak stops."""
        streak = tracker.get("", _NO_STREAK)
        count = streak.count
        if (count < self.min_count and not refused_count) or (not count and self.max):
            return None
        by_tool = self.same_error or bool(self.signature)
        if by_tool and self.max and attempt.full_name not in streak.tools:
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        how = "with the same error" if self.same_error else "in a row"
        by_tool = by_tool and bool(count)
        calls = (
            f"calls of `{attempt.shown_tool}`" if by_tool and len(streak.tools) == 1 else "calls"
        )
        return Violation(
            self.id,
            effect,
            "failures",
            f"{calls} have failed {format_streak(count, how)}" if count else NEVER_ALLOWED,
            _OTHER_TOOL if by_tool else _INSTEAD,
            count,
            self.max,
        )

    def complete(self, tracker: FailureStreaks, attempt: Attempt, outcome: Outcome) -> None:
        """End the streak with a success; continue it with a failure, or begin another."""
        if outcome.state == "pending" or outcome.harness_flagged:
            return
        if outcome.ok or (self.signature and outcome.signature != self.signature):
            tracker.clear()
            return
        streak = tracker.get("")
        if streak is None or (
            self.same_error and outcome.error_fingerprint != streak.error_fingerprint
        ):
            streak = tracker[""] = FailureStreak(outcome.error_fingerprint)
        self._add(streak.tools, attempt.full_name)
        if attempt.batch in streak.batches:
            return
        if attempt.batch:
            self._add(streak.batches, attempt.batch)
        streak.count += 1

    def _add(self, names: dict[str, None], name: str) -> None:
        names[name] = None
        if len(names) > self.max_names:
            del names[next(iter(names))]


_NO_STREAK = FailureStreak("")
_INSTEAD = "find the cause by other means before you try again, or finish with what you have"
_OTHER_TOOL = (
    "find the cause with another tool, whose success allows this one again, or finish and report "
    "what prevents you"
)
