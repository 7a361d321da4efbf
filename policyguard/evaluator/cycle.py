"""`cycle`: a short sequence of calls that comes round again with the same results."""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from policyguard.evaluator.attempt import Attempt, Call
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Steps:
    """The latest steps, as many as matter, and the calls of the last round of them."""

    __slots__ = ("calls", "steps")

    def __init__(self, longest: int) -> None:
        self.steps: list[Call] = []
        self.calls: deque[str] = deque(maxlen=longest)


class Cycle(Limit):
    """Refuses the call that would begin round `max + 1` of a cycle of 2 to `longest` calls.

    The calls that would go on with that round are refused too, until a call that leaves it. One
    call repeated is no cycle but a repetition, which is `repeat`'s (and `polling`'s) business.
    """

    __slots__ = ("longest", "most")

    counts = True

    def __init__(self, terms: Terms, *, longest: int, max: int) -> None:  # noqa: A002 - the field's name
        super().__init__(terms, max)
        self.hears = False
        self.longest = longest
        self.most = longest * max

    def tracker(self) -> Steps:
        """No steps yet."""
        return Steps(self.longest)

    def seen(self, tracker: Steps) -> Container[str] | None:
        """The calls of the latest steps."""
        return tracker.calls

    def stirs(self, tracker: Steps) -> bool:
        """Nothing but steps counts."""
        return False

    def judge(
        self, tracker: Steps, attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Looks for a period that the steps so far keep and the attempt would continue."""
        call = attempt.fingerprint
        if call not in tracker.calls:
            return None
        steps = tracker.steps
        rounds = max(1, min(2, self.least), self.least - insisted)
        length = self._length(steps, call, rounds)
        if length is None:
            return None
        count = rounds
        while count < self.max and _keeps(steps, length, count + 1):
            count += 1
        effect = self.answer(count, insisted)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "cycle",
            f"the same {length} calls have come round {times(count)}, results unchanged",
            "leave this sequence: change the approach, or finish with what you have",
            count,
            self.max,
        )

    def admit(self, tracker: Steps, attempt: Attempt) -> None:
        """The call is the latest step."""
        tracker.calls.append(attempt.fingerprint)
        steps = tracker.steps
        steps.append(attempt.call)
        if len(steps) > self.most:
            del steps[0]

    def refuse(self, tracker: Steps, attempt: Attempt) -> None:
        """A call that goes round once more stands there as if it had come back as before.

        Else an agent that skips the refused call would go round as often again.
        """
        length = self._length(tracker.steps, attempt.fingerprint, self.max)
        if length is not None:
            before = tracker.steps[-length]
            call = attempt.fingerprint
            attempt.call = Call(call, call, before.result)
            self.admit(tracker, attempt)

    def _length(self, steps: list[Call], call: str, rounds: int) -> int | None:
        """How many calls the cycle has that the last `rounds` keep and `call` would continue."""
        for length in range(2, self.longest + 1):
            if len(steps) < length * rounds:
                return None
            if steps[-length].fingerprint == call and _keeps(steps, length, rounds):
                return length
        return None

    def complete(self, tracker: Steps, attempt: Attempt, outcome: Outcome) -> None:
        """The step itself knows its result."""

    def release(self, tracker: Steps, attempt: Attempt) -> None:
        """The step is taken out."""
        if attempt.call in tracker.steps:
            tracker.steps.remove(attempt.call)
            tracker.calls.clear()
            tracker.calls.extend(step.fingerprint for step in tracker.steps[-self.longest :])


def _keeps(steps: list[Call], length: int, rounds: int) -> bool:
    """Whether the last `rounds` rounds of `length` steps are alike, and not one call repeated."""
    if len(steps) < length * rounds:
        return False
    first = steps[-1].fingerprint
    if all(step.fingerprint == first for step in steps[-length:]):
        return False
    for place in range(1, length * (rounds - 1) + 1):
        step, before = steps[-place], steps[-place - length]
        if step.fingerprint != before.fingerprint:
            return False
        if step.result is None or step.result != before.result:
            return False
    return True
