"""`failures`: failure after failure, whatever the arguments."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker, LimitSettings
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import NEVER_ALLOWED, format_streak
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class FailureStreak:
    """The failures in a row, so far: how many, with which error, of which tools and batches."""

    __slots__ = ("batches", "count", "error_fingerprint", "tools")

    def __init__(self, error_fingerprint: str) -> None:
        self.count = 0
        self.error_fingerprint = error_fingerprint
        self.batches: dict[str, None] = {}
        self.tools: dict[str, None] = {}


class FailuresChecker(LimitChecker):
    """Refuses calls after `max` failures in a row; the parallel calls of one batch count once.

    With `same_error` only one and the same error makes a row (its accidents masked), with
    `signature` only failures of that signature; then only the tools (of their servers) that failed
    in the row are refused, so that another tool's success can end it. A pending result, and one
    that the harness is to blame for by the host's word, neither lengthens nor ends the row.

    At most `most` tools and batches of a row are remembered, the first to fail is forgotten first.
    """

    __slots__ = ("max_names", "same_error", "signature")

    def __init__(
        self,
        settings: LimitSettings,
        *,
        max: int,  # noqa: A002 - the field's name in the language
        same_error: bool,
        signature: str,
        max_names: int,
    ) -> None:
        super().__init__(settings, max, always_evaluated=False)
        self.max_names = max_names
        self.same_error = same_error
        self.signature = signature

    def new_tracker(self) -> dict[str, FailureStreak]:
        """No row, which would stand under an empty name."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """Whatever the agent tries while the row lasts; with one error or signature, the tool."""
        return attempt.full_name if self.same_error or self.signature else ""

    def evaluate(
        self,
        tracker: dict[str, FailureStreak],
        attempt: Attempt,
        changes: StateChanges,
        refused_count: int,
    ) -> Violation | None:
        """Whether the row is full, and the attempt one of those that it stops."""
        row = tracker.get("", _NO_STREAK)
        count = row.count
        if (count < self.min_count and not refused_count) or (not count and self.max):
            return None
        if (self.same_error or self.signature) and self.max and attempt.full_name not in row.tools:
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        how = "with the same error" if self.same_error else "in a row"
        # Another tool's success ends the row, where there is a row of some tools.
        by_tool = bool(count) and (self.same_error or bool(self.signature))
        who = f"calls of `{attempt.tool}`" if by_tool and len(row.tools) == 1 else "calls"
        return Violation(
            self.id,
            effect,
            "failures",
            f"{who} have failed {format_streak(count, how)}" if count else NEVER_ALLOWED,
            _OTHER_TOOL if by_tool else _INSTEAD,
            count,
            self.max,
        )

    def complete(
        self, tracker: dict[str, FailureStreak], attempt: Attempt, outcome: Outcome
    ) -> None:
        """A success ends the row, a failure lengthens it (or begins a new one)."""
        if outcome.state == "pending" or outcome.harness_flagged:
            return
        if outcome.ok or (self.signature and outcome.signature != self.signature):
            tracker.clear()
            return
        row = tracker.get("")
        if row is None or (self.same_error and outcome.error_fingerprint != row.error_fingerprint):
            row = tracker[""] = FailureStreak(outcome.error_fingerprint)
        self._add(row.tools, attempt.full_name)
        if attempt.batch in row.batches:
            return
        if attempt.batch:
            self._add(row.batches, attempt.batch)
        row.count += 1

    def _add(self, names: dict[str, None], name: str) -> None:
        names[name] = None
        if len(names) > self.max_names:
            del names[next(iter(names))]


_NO_STREAK = FailureStreak("")
_INSTEAD = "find the cause by other means before you try again, or finish with what you have"
_OTHER_TOOL = (
    "find the cause with another tool, whose success opens this one again, or finish with what you "
    "have and say what stands in the way"
)
