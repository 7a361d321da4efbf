"""`cycle`: a short sequence of calls that comes round again with the same results."""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from policyguard.evaluator.attempt import Attempt, WindowEntry
from policyguard.evaluator.limits.base import LimitChecker, LimitSettings
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class CallSequence:
    """The latest steps, as many as matter, and the calls of the last round of them."""

    __slots__ = ("entries", "recent")

    def __init__(self, longest: int) -> None:
        self.entries: list[WindowEntry] = []
        self.recent: deque[str] = deque(maxlen=longest)


class CycleChecker(LimitChecker):
    """Refuses the call that would begin round `max + 1` of a cycle of 2 to `longest` calls.

    The calls that would go on with that round are refused too, until a call that leaves it. One
    call repeated is no cycle but a repetition, which is `repeat`'s (and `polling`'s) business.
    """

    __slots__ = ("longest", "max_entries")

    needs_admissions = True

    def __init__(self, settings: LimitSettings, *, longest: int, max: int) -> None:  # noqa: A002 - the field's name
        super().__init__(settings, max)
        self.needs_successes = False
        self.longest = longest
        self.max_entries = longest * max

    def new_tracker(self) -> CallSequence:
        """No steps yet."""
        return CallSequence(self.longest)

    def watched(self, tracker: CallSequence) -> Container[str] | None:
        """The calls of the latest steps."""
        return tracker.recent

    def is_active(self, tracker: CallSequence) -> bool:
        """Nothing but steps counts."""
        return False

    def evaluate(
        self, tracker: CallSequence, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Looks for a period that the steps so far keep and the attempt would continue."""
        call = attempt.fingerprint
        if call not in tracker.recent:
            return None
        steps = tracker.entries
        rounds = max(1, min(2, self.min_count), self.min_count - refused_count)
        length = self._find_length(steps, call, rounds)
        if length is None:
            return None
        count = rounds
        while count < self.max and _is_periodic(steps, length, count + 1):
            count += 1
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "cycle",
            f"the same {length} calls have come round {format_times(count)}, results unchanged",
            "leave this sequence: change the approach, or finish with what you have",
            count,
            self.max,
        )

    def admit(self, tracker: CallSequence, attempt: Attempt) -> None:
        """The call is the latest step."""
        tracker.recent.append(attempt.fingerprint)
        steps = tracker.entries
        steps.append(attempt.window_entry)
        if len(steps) > self.max_entries:
            del steps[0]

    def refuse(self, tracker: CallSequence, attempt: Attempt) -> None:
        """A call that goes round once more stands there as if it had come back as before.

        Else an agent that skips the refused call would go round as often again.
        """
        length = self._find_length(tracker.entries, attempt.fingerprint, self.max)
        if length is not None:
            before = tracker.entries[-length]
            call = attempt.fingerprint
            attempt.window_entry = WindowEntry(call, call, before.result_fingerprint)
            self.admit(tracker, attempt)

    def _find_length(self, steps: list[WindowEntry], call: str, rounds: int) -> int | None:
        """How many calls the cycle has that the last `rounds` keep and `call` would continue."""
        for length in range(2, self.longest + 1):
            if len(steps) < length * rounds:
                return None
            if steps[-length].fingerprint == call and _is_periodic(steps, length, rounds):
                return length
        return None

    def complete(self, tracker: CallSequence, attempt: Attempt, outcome: Outcome) -> None:
        """The step itself knows its result."""

    def release(self, tracker: CallSequence, attempt: Attempt) -> None:
        """The step is taken out."""
        if attempt.window_entry in tracker.entries:
            tracker.entries.remove(attempt.window_entry)
            tracker.recent.clear()
            tracker.recent.extend(step.fingerprint for step in tracker.entries[-self.longest :])


def _is_periodic(steps: list[WindowEntry], length: int, rounds: int) -> bool:
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
        if step.result_fingerprint is None or step.result_fingerprint != before.result_fingerprint:
            return False
    return True
