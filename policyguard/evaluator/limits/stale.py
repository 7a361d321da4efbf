"""`stale`, and two kinds of `repeat`: calls whose results bring nothing new."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.recent_results import TRACKER_ID, RecentResults
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_streak, format_times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class RecentResultsChecker(LimitChecker, eq=False, kw_only=True):
    """A limit that goes by recent results. All of a session, or of a turn, share one tracker.

    It keeps the latest `window` different calls, the largest that one of them asks for. Waiting is
    not counted: a call under a `polling` limit is under none of these.
    """

    reads_recent_results = True

    window: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_successes = False

    @property
    def tracker_id(self) -> str:
        """The tracker that these limits share."""
        return TRACKER_ID

    def share(self, tracker: RecentResults) -> None:
        """Let the tracker keep as many calls as this limit asks for."""
        tracker.window = max(tracker.window, self.window)

    def new_tracker(self) -> RecentResults:
        """Return no results."""
        return RecentResults(self.window)

    def watched(self, tracker: RecentResults) -> Container[str] | None:
        """Return the recent calls, by likeness."""
        return tracker.calls

    @abstractmethod
    def count(self, tracker: RecentResults, attempt: Attempt) -> int | None:
        """Return how many results in a row concern an attempt; None if it is not concerned."""

    @abstractmethod
    def describe(self, count: int) -> tuple[str, str, str]:
        """Return the reason, the text and what to do instead of a violation."""

    def evaluate(
        self, tracker: RecentResults, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of an attempt that goes on with a row."""
        count = self.count(tracker, attempt)
        if count is None or (count < self.min_count and not refused_count):
            return None
        if count == 0 < self.max:  # refusals by other entries are no row of results
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        reason, text, instead = self.describe(count)
        return Violation(self.id, effect, reason, text, instead, count, self.max)

    def complete(self, tracker: RecentResults, attempt: Attempt, outcome: Outcome) -> None:
        """Count nothing: the results are noted once for all of these limits."""


class StaleChecker(RecentResultsChecker, eq=False, kw_only=True):
    """Refuses a call once `max` calls in a row had each been made before, with the same result.

    A call that is not among the recent ones is never refused: its result is new.
    """

    def subject(self, attempt: Attempt) -> str:
        """Return one subject for all attempts."""
        return ""

    def count(self, tracker: RecentResults, attempt: Attempt) -> int | None:
        """Return the length of the row, for a call that was made before."""
        return tracker.stale_count if attempt.likeness in tracker.calls else None

    def describe(self, count: int) -> tuple[str, str, str]:
        """Return the texts of a violation."""
        calls = "the last call has" if count == 1 else f"each of the last {count} calls has"
        return (
            "stale",
            f"{calls} repeated an earlier one, with the same result",
            "use what they have returned: try something that you have not tried, or finish with it",
        )


class UnchangedChecker(RecentResultsChecker, eq=False, kw_only=True):
    """Refuses a call that has returned the same `max` times in a row, changes in between or not.

    Before `without_news` calls in a row have returned what some call had returned before, it only
    advises.
    """

    without_news: int

    def count(self, tracker: RecentResults, attempt: Attempt) -> int | None:
        """Return how often the call has stayed the same."""
        count = tracker.count_unchanged(attempt)
        if count is None or tracker.known_count >= self.without_news:
            return count
        return min(count, self.max - 1)

    def describe(self, count: int) -> tuple[str, str, str]:
        """Return the texts of a violation."""
        return (
            "repeat",
            f"the same call has been made {format_times(count)}, and whatever was changed in "
            "between, its result has not",
            "find out first what its result depends on, or report what you know",
        )


class SameResultChecker(RecentResultsChecker, eq=False, kw_only=True):
    """Refuses a tool once `max` of its calls in a row have returned the same, as `[]` does.

    Only successes of calls that change no state count. Another result, of whichever tool, and a
    change of state end the rows of all tools.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.may_be_active = True

    def watched(self, tracker: RecentResults) -> Container[str] | None:
        """Return nothing: the limit is active where it may refuse."""
        return ()

    def is_active(self, tracker: RecentResults) -> bool:
        """Whether a row is so long that the next call may violate the limit."""
        return bool(tracker.tool_rows) and max(tracker.tool_rows.values()) >= self.min_count

    def subject(self, attempt: Attempt) -> str:
        """Return the tool with its server."""
        return attempt.full_name

    def count(self, tracker: RecentResults, attempt: Attempt) -> int | None:
        """Return how often the tool has returned the same."""
        tool = attempt.full_name
        return tracker.tool_rows.get(tool, 1) if tool in tracker.tools else None

    def evaluate(
        self, tracker: RecentResults, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of a call that changes no state, of a tool whose row is full."""
        found = super().evaluate(tracker, attempt, changes, refused_count)
        if found is not None and attempt.bound_plan.plan.is_state_changing(attempt):
            return None
        return found

    def describe(self, count: int) -> tuple[str, str, str]:
        """Return the texts of a violation."""
        return (
            "repeat",
            f"this tool has returned the same {format_streak(count)}, whatever you asked",
            "take that for the answer, or look elsewhere",
        )
