"""`cycle`: a short sequence of calls that repeats with the same results."""

from __future__ import annotations

from collections.abc import Container

from policyguard.evaluator.attempt import Attempt, WindowEntry
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome

_SLACK = 8
"""Entries beyond those that matter, which are forgotten together."""


class CallSequence:
    """The latest calls that matter; it contains the likenesses of the `longest` last of them."""

    __slots__ = ("_longest", "entries")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.entries: list[WindowEntry] = []  # a deque would be five times as large

    def __contains__(self, likeness: object) -> bool:
        # Asked only where no `repeat` watches these calls, too: so no list of them is kept.
        return any(entry.likeness == likeness for entry in self.entries[-self._longest :])


class CycleChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses the call that would begin round `max + 1` of `shortest` to `longest` calls.

    Calls that would continue that round are refused too, until one leaves it. One repeated call is
    no cycle: `repeat` and `polling` count those.
    """

    needs_admissions = True

    longest: int
    shortest: int = 2
    max_entries: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_successes = False
        self.max_entries = self.longest * self.max + _SLACK

    def new_tracker(self) -> CallSequence:
        """Return an empty sequence."""
        return CallSequence(self.longest)

    def watched(self, tracker: CallSequence) -> Container[str] | None:
        """Return the recent calls."""
        return tracker

    def evaluate(
        self, tracker: CallSequence, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of an attempt that continues a period of the latest calls."""
        fingerprint = attempt.likeness
        entries = tracker.entries
        rounds = max(1, min(2, self.min_count), self.min_count - refused_count)
        length, count = self._find_cycle(entries, fingerprint, rounds)
        if not length:
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        return Violation(
            self.id,
            effect,
            "cycle",
            f"the same {length} calls have repeated {format_times(count)}, results unchanged",
            "break this sequence: change the approach, or finish with what you have",
            count,
            self.max,
        )

    def admit(self, tracker: CallSequence, attempt: Attempt) -> None:
        """Append the call."""
        entries = tracker.entries
        entries.append(attempt.window_entry)
        if len(entries) > self.max_entries:
            del entries[:_SLACK]  # not one by one, which moves all others

    def refuse(self, tracker: CallSequence, attempt: Attempt) -> None:
        """Append a refused call of a full cycle as if it had returned what it did before.

        Else an agent that skips the refused call could go round as often again.
        """
        length, _ = self._find_cycle(tracker.entries, attempt.likeness, self.max)
        if length:
            before = tracker.entries[-length]
            attempt.window_entry = WindowEntry(
                before.likeness,
                result_fingerprint=before.result_fingerprint,
                like_result=before.like_result,
            )
            self.admit(tracker, attempt)

    def _find_cycle(
        self, entries: list[WindowEntry], fingerprint: str, min_rounds: int
    ) -> tuple[int, int]:
        """Return the length and rounds of the cycle that a call would continue; (0, 0) for none.

        It is the cycle with the most rounds (up to `max`), as a shorter one may lie within it.
        """
        found = (0, 0)
        for length in range(self.shortest, self.longest + 1):
            if len(entries) < length * min_rounds:
                break
            if entries[-length].likeness != fingerprint:
                continue
            rounds = max(min_rounds, found[1] + 1)
            while rounds <= max(self.max, min_rounds) and _is_periodic(entries, length, rounds):
                found = (length, rounds)
                rounds += 1
        return found

    def complete(self, tracker: CallSequence, attempt: Attempt, outcome: Outcome) -> None:
        """Count nothing: the entry itself holds its result."""

    def release(self, tracker: CallSequence, attempt: Attempt) -> None:
        """Remove the call."""
        if attempt.window_entry in tracker.entries:
            tracker.entries.remove(attempt.window_entry)


def _is_periodic(entries: list[WindowEntry], length: int, rounds: int) -> bool:
    """Whether the last `rounds` rounds of `length` calls are equal, and not one repeated call.

    A call without a result counts as unchanged, as for `repeat`.
    """
    if len(entries) < length * rounds:
        return False
    last = entries[-1].likeness
    if all(entry.likeness == last for entry in entries[-length:]):
        return False
    results: list[WindowEntry | None] = [None] * length
    for index in range(1, length * rounds + 1):
        entry = entries[-index]
        if index > length and entry.likeness != entries[length - index].likeness:
            return False
        if entry.result_fingerprint is None:
            continue
        position = index % length
        later = results[position]
        if later is not None and not entry.has_result_of(later):
            return False
        results[position] = entry
    return True
