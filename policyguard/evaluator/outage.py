"""`outage`: a tool that keeps failing by no fault of the agent is given a rest, then one trial."""

from __future__ import annotations

from collections import deque

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.wording import seconds, times
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


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


class Outage:
    """Refuses a tool for `cooldown` after `max` harness failures in a row `within` a time.

    Then one call is let through, and others wait for its outcome: a harness failure means another
    rest, an unknown one another trial, anything else that the tool is back. A trial that nobody
    reports is given up after `patience`. All are nanoseconds.

    Each tool (of each server) has a row of its own; with `together` the tools under this limit
    share one. At most `most` rows are remembered, the one that failed longest ago is forgotten
    first. Calls without a time are neither judged nor counted.
    """

    __slots__ = (
        "cooldown",
        "effect",
        "id",
        "max",
        "most",
        "observe",
        "patience",
        "per_turn",
        "together",
        "within",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name in the language
        *,
        max: int,  # noqa: A002 - the field's name in the language
        within: int,
        cooldown: int,
        together: bool,
        most: int,
        patience: int,
        effect: Effect,
        per_turn: bool,
        observe: bool,
    ) -> None:
        self.id = id
        self.max = max
        self.within = within
        self.cooldown = cooldown
        self.together = together
        self.most = most
        self.patience = patience
        self.effect = effect
        self.per_turn = per_turn
        self.observe = observe

    def tracker(self) -> dict[str, Row]:
        """No tool has failed."""
        return {}

    def judge(
        self, tracker: dict[str, Row], attempt: Attempt, changes: Changes
    ) -> Violation | None:
        """Whether the tool rests, or is being tried."""
        row = tracker.get(self._name(attempt)) if tracker else None
        if row is None or row.until is None or attempt.at is None:
            return None
        left = row.until - attempt.at
        if left <= 0 and not self._tried(row, attempt.at):
            return None
        who = "these tools have" if self.together else "this tool has"
        failed = f"{who} failed {times(self.max)} within {seconds(self.within)}, not by your fault"
        return Violation(
            self.id,
            self.effect,
            "outage",
            failed if left > 0 else f"{failed}; one call is trying whether that is over",
            "do something else meanwhile, or take another tool",
            self.max,
            self.max,
            retry_after=left / 1e9 if left > 0 else None,
        )

    def admit(self, tracker: dict[str, Row], attempt: Attempt) -> Trial | None:
        """The first call after a rest is the trial."""
        row = tracker.get(self._name(attempt)) if tracker else None
        at = attempt.at
        if row is None or row.until is None or at is None:
            return None
        # During the rest, calls get here where this limit does not refuse (`advise`, `observe`).
        if at < row.until or self._tried(row, at):
            return None
        row.trial = Trial(at)
        return row.trial

    def complete(
        self,
        tracker: dict[str, Row],
        mark: Trial | None,
        attempt: Attempt,
        outcome: Outcome,
        seq: int,
    ) -> None:
        """A harness failure lengthens the row or the rest; an unknown one changes nothing."""
        name = self._name(attempt)
        row = tracker.get(name)
        down = outcome.blame == "harness"
        if row is not None and row.until is not None:
            if mark is None or mark is not row.trial:
                return  # begun before the rest (or given up): it says nothing of the tool as it is
            row.trial = None
            if down:
                row.until = (mark.at if attempt.ended is None else attempt.ended) + self.cooldown
            elif outcome.blame != "unknown":
                del tracker[name]
        elif down:
            if attempt.ended is not None:
                self._count(tracker, name, attempt.ended)
        elif row is not None and outcome.blame != "unknown":
            del tracker[name]

    def release(self, tracker: dict[str, Row], mark: Trial | None, attempt: Attempt) -> None:
        """A trial that did not run leaves its place to another call."""
        row = tracker.get(self._name(attempt))
        if row is not None and row.trial is mark:
            row.trial = None

    def _name(self, attempt: Attempt) -> str:
        if self.together:
            return ""
        return f"{attempt.server}\x1f{attempt.tool}" if attempt.server else attempt.tool

    def _tried(self, row: Row, at: int) -> bool:
        return row.trial is not None and at - row.trial.at < self.patience

    def _count(self, tracker: dict[str, Row], name: str, at: int) -> None:
        row = tracker.pop(name) if name in tracker else Row()
        tracker[name] = row  # the latest to fail
        row.failures.append(at)
        if len(row.failures) > self.max:
            row.failures.popleft()
        if len(row.failures) == self.max and at - row.failures[0] < self.within:
            row.until = at + self.cooldown
        if len(tracker) > self.most:
            del tracker[next(iter(tracker))]
