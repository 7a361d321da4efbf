"""`no_progress`: results that the tool itself flags as not advancing, whatever was asked."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import NEVER, in_a_row
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Row:
    """The flagged results of one tool since it last advanced."""

    __slots__ = ("batch", "count", "result")

    def __init__(self) -> None:
        self.count = 0
        self.result = ""
        self.batch = ""


class NoProgress(Limit):
    """Refuses a tool after `max` results in a row that were flagged as not advancing.

    Only a success of the tool that is not flagged, and brings something else than the last flagged
    result, ends the row; a failure, a pending result and one that the harness is to blame for
    neither lengthen nor end it. The parallel calls of one batch count once. At most `most` tools
    are remembered, the one flagged longest ago is forgotten first.
    """

    __slots__ = ("most",)

    def __init__(self, terms: Terms, *, max: int, most: int) -> None:  # noqa: A002 - the field's name
        super().__init__(terms, max, always=False)
        self.most = most

    def tracker(self) -> dict[str, Row]:
        """No tool has been flagged."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """The tool, on its server."""
        return attempt.full_name

    def judge(
        self, tracker: dict[str, Row], attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Whether the tool's row is full."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        count = row.count if row is not None else 0
        if (count < self.least and not insisted) or (not count and self.max):
            return None
        effect = self.answer(count, insisted)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "no_progress",
            f"this tool has made no progress {in_a_row(count)}" if count else NEVER,
            "say what is missing instead of asking on, or try another tool",
            count,
            self.max,
        )

    def complete(self, tracker: dict[str, Row], attempt: Attempt, outcome: Outcome) -> None:
        """A flagged result lengthens the row, an advancing success ends it."""
        if outcome.infra:
            return
        if outcome.advancing and not tracker:
            return
        name = self.subject(attempt)
        if outcome.advancing:
            row = tracker.get(name)
            if row is not None and outcome.state == "success" and outcome.result != row.result:
                del tracker[name]
            return
        row = tracker.pop(name) if name in tracker else Row()
        tracker[name] = row  # the latest to be flagged
        if not attempt.batch or attempt.batch != row.batch or not row.count:
            row.count += 1
        row.batch = attempt.batch
        row.result = outcome.result
        if len(tracker) > self.most:
            del tracker[next(iter(tracker))]

    def relent(self, tracker: dict[str, Row], subject: str) -> None:
        """Something else has advanced: the tool may try once more."""
        row = tracker.get(subject)
        if row is not None:
            row.count = min(row.count, self.max - 1)
