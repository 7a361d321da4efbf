"""`outage`: a tool that keeps failing by no fault of the agent is given a rest, then one trial."""

from __future__ import annotations

from collections import deque

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import seconds, times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome
from policyguard.model.quantity import nanoseconds


class Trial:
    """The one call that finds out whether the tool is back; admitted `at` (ns)."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class Row:
    """The harness failures of one tool in a row (their times, ns), or its rest.

    `until` is when the rest is over (ns), None while the tool is in use. `trial` is the call that
    tries it then, None while none does.
    """

    __slots__ = ("failures", "trial", "until")

    def __init__(self) -> None:
        self.failures: deque[int] = deque()
        self.until: int | None = None
        self.trial: Trial | None = None


class Outage(Limit):
    """Refuses a tool for `cooldown` after `max` harness failures in a row `within` a time.

    Then one call is let through, and others wait for its outcome: a harness failure means another
    rest, an unknown one another trial, anything else that the tool is back. A trial that nobody
    reports is given up after `patience`. All are nanoseconds.

    Each tool (of each server) has a row of its own; with `together` the tools under this limit
    share one (with those of their server). At most `most` rows are remembered, the one that failed
    longest ago is forgotten first. Calls without a time are neither judged nor counted.
    """

    __slots__ = ("cooldown", "most", "patience", "together", "within")

    def __init__(
        self,
        terms: Terms,
        *,
        max: int,  # noqa: A002 - the field's name in the language
        within: int,
        cooldown: int,
        together: bool,
        most: int,
        patience: int,
    ) -> None:
        super().__init__(terms, max, always=False)
        self.within = within
        self.cooldown = cooldown
        self.together = together
        self.most = most
        self.patience = patience

    def tracker(self) -> dict[str, Row]:
        """No tool has failed."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """The tool, on its server; with `together`, all of that server."""
        return attempt.server if self.together else attempt.full_name

    def judge(
        self, tracker: dict[str, Row], attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Whether the tool rests, or is being tried."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        if row is None or attempt.at is None:
            return None
        if row.until is None:
            return self._on_its_way(row, insisted)
        left = row.until - attempt.at
        if left <= 0 and not self._tried(row, attempt.at):
            return None
        effect = self.ladder.answer(self.max + insisted + 1, over=True)
        assert effect is not None  # noqa: S101 - over: the ladder's own effect at least
        who = "these tools have" if self.together else "this tool has"
        failed = f"{who} failed {times(self.max)} within {seconds(self.within)}, not by your fault"
        return Violation(
            self.id,
            effect,
            "outage",
            failed if left > 0 else f"{failed}; one call is trying whether that is over",
            "do something else meanwhile, or take another tool",
            self.max,
            self.max,
            retry_after=left / 1e9 if left > 0 else None,
        )

    def _on_its_way(self, row: Row, insisted: int) -> Violation | None:
        """What the steps say while the tool is still in use."""
        count = len(row.failures)
        if not self.climbs or count >= self.max:  # as many, but too far apart
            return None
        effect = self.answer(count, insisted)
        if effect is None:
            return None
        text = f"this tool has failed {times(count)}, not by your fault"
        instead = "take another tool if there is one"
        return Violation(self.id, effect, "outage", text, instead, count, self.max)

    def admit(self, tracker: dict[str, Row], attempt: Attempt) -> None:
        """The first call after a rest is the trial."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        at = attempt.at
        if row is None or row.until is None or at is None:
            return
        # During the rest, calls get here where this limit does not refuse (`advise`, `observe`).
        if at < row.until or self._tried(row, at):
            return
        row.trial = Trial(at)
        attempt.mark(self.id, row.trial)

    def complete(self, tracker: dict[str, Row], attempt: Attempt, outcome: Outcome) -> None:
        """A harness failure lengthens the row or the rest; an unknown one changes nothing."""
        down = outcome.blame == "harness"
        if not (tracker or down):
            return
        name = self.subject(attempt)
        row = tracker.get(name)
        if row is not None and row.until is not None:
            mark: Trial | None = attempt.marks.get(self.id)
            if mark is None or mark is not row.trial:
                return  # begun before the rest (or given up): it says nothing of the tool as it is
            row.trial = None
            if down:
                ended = mark.at if attempt.ended is None else attempt.ended
                row.until = ended + self._rest(outcome)
            elif outcome.blame != "unknown":
                del tracker[name]
        elif down:
            if attempt.ended is not None:
                self._count(tracker, name, attempt.ended, outcome)
        elif row is not None and outcome.blame != "unknown":
            del tracker[name]

    def release(self, tracker: dict[str, Row], attempt: Attempt) -> None:
        """A trial that did not run leaves its place to another call."""
        row = tracker.get(self.subject(attempt))
        if row is not None and row.trial is attempt.marks.get(self.id):
            row.trial = None

    def _rest(self, outcome: Outcome) -> int:
        """How long the tool rests: as the policy says, or longer where the tool asks for it."""
        return max(self.cooldown, nanoseconds(outcome.retry_after))

    def _tried(self, row: Row, at: int) -> bool:
        return row.trial is not None and at - row.trial.at < self.patience

    def _count(self, tracker: dict[str, Row], name: str, at: int, outcome: Outcome) -> None:
        row = tracker.pop(name) if name in tracker else Row()
        tracker[name] = row  # the latest to fail
        row.failures.append(at)
        if len(row.failures) > self.max:
            row.failures.popleft()
        if len(row.failures) == self.max and at - row.failures[0] < self.within:
            row.until = at + self._rest(outcome)
        if len(tracker) > self.most:
            del tracker[next(iter(tracker))]
