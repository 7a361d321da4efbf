"""`cycle`: a short sequence of calls that comes round again with the same results."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Step:
    """One call of the sequence; `result` is None until it has completed."""

    __slots__ = ("call", "result")

    def __init__(self, call: str) -> None:
        self.call = call
        self.result: str | None = None


class Cycle(Limit):
    """Refuses the call that would begin round `max + 1` of a cycle of 2 to `longest` calls.

    One call repeated is no cycle but a repetition, which is `repeat`'s (and `polling`'s) business.
    """

    __slots__ = ("least", "longest")

    def __init__(self, terms: Terms, *, longest: int, max: int) -> None:  # noqa: A002 - the field's name
        super().__init__(terms, max)
        self.longest = longest
        lowest = terms.ladder.lowest
        self.least = max if lowest is None else min(max, lowest - 1)

    def tracker(self) -> list[Step]:
        """No steps yet."""
        return []

    def judge(
        self, tracker: list[Step], attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Looks for a period that the steps so far keep and the attempt would continue."""
        call = attempt.fingerprint
        rounds = max(1, min(2, self.least), self.least - insisted)
        for length in range(2, self.longest + 1):
            if len(tracker) < length * rounds:
                return None
            if tracker[-length].call == call and _keeps(tracker, length, rounds):
                count = rounds
                while count < self.max and _keeps(tracker, length, count + 1):
                    count += 1
                return self.violation(
                    count,
                    insisted,
                    "cycle",
                    f"the same {length} calls have come round {times(count)}, results unchanged",
                    "leave this sequence: change the approach, or finish with what you have",
                )
        return None

    def admit(self, tracker: list[Step], attempt: Attempt) -> Step:
        """The call is the latest step; what can no longer matter is dropped."""
        step = Step(attempt.fingerprint)
        tracker.append(step)
        if len(tracker) > 2 * self.longest * self.max:
            del tracker[: -self.longest * self.max]
        return step

    def complete(
        self, tracker: list[Step], mark: Step, attempt: Attempt, outcome: Outcome, seq: int
    ) -> None:
        """The step's result is known."""
        mark.result = outcome.result

    def release(self, tracker: list[Step], mark: Step, attempt: Attempt) -> None:
        """The step is taken out."""
        if mark in tracker:
            tracker.remove(mark)


def _keeps(steps: list[Step], length: int, rounds: int) -> bool:
    """Whether the last `rounds` rounds of `length` steps are alike, and not one call repeated."""
    if len(steps) < length * rounds:
        return False
    first = steps[-1].call
    if all(step.call == first for step in steps[-length:]):
        return False
    for place in range(1, length * (rounds - 1) + 1):
        step, before = steps[-place], steps[-place - length]
        if step.call != before.call or step.result is None or step.result != before.result:
            return False
    return True
