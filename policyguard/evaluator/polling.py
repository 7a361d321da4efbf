"""`polling`: a call that is meant to be repeated until its result changes."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.wording import seconds, times
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class Poll:
    """One call being polled: when it was last admitted, and how often its result stayed."""

    __slots__ = ("at", "result", "unchanged")

    def __init__(self) -> None:
        self.at: int | None = None
        self.result: str | None = None
        self.unchanged = 0


class Polling:
    """Asks for `cooldown` nanoseconds between the same polls, and for a change after `unchanged`.

    At most `most` different polls are remembered, the least recently used is forgotten first.
    """

    __slots__ = ("cooldown", "effect", "id", "most", "observe", "per_turn", "unchanged")

    def __init__(
        self,
        id: str,  # noqa: A002 - the field's name in the language
        *,
        cooldown: int | None,
        unchanged: int | None,
        most: int,
        effect: Effect,
        per_turn: bool,
        observe: bool,
    ) -> None:
        self.id = id
        self.cooldown = cooldown
        self.unchanged = unchanged
        self.most = most
        self.effect = effect
        self.per_turn = per_turn
        self.observe = observe

    def tracker(self) -> dict[str, Poll]:
        """No polls yet."""
        return {}

    def judge(
        self, tracker: dict[str, Poll], attempt: Attempt, changes: Changes
    ) -> Violation | None:
        """Too soon, or unchanged too often."""
        poll = tracker.get(attempt.fingerprint)
        if poll is None:
            return None
        if self.unchanged is not None and poll.unchanged >= self.unchanged:
            return Violation(
                f"{self.id}/unchanged",
                self.effect,
                "polling",
                f"this poll's result has stayed the same {times(poll.unchanged)}",
                "stop waiting for it: look at what it waits for, or finish with what you have",
                poll.unchanged,
                self.unchanged,
            )
        if self.cooldown is not None and attempt.at is not None and poll.at is not None:
            left = poll.at + self.cooldown - attempt.at
            if left > 0:
                return Violation(
                    f"{self.id}/cooldown",
                    self.effect,
                    "polling",
                    f"the same poll may be made once in {seconds(self.cooldown)}",
                    "wait, or do something else meanwhile",
                    retry_after=left / 1e9,
                )
        return None

    def admit(self, tracker: dict[str, Poll], attempt: Attempt) -> Poll:
        """The poll is the most recently used."""
        poll = tracker.pop(attempt.fingerprint, None)
        if poll is None:
            poll = Poll()
            if len(tracker) >= self.most:
                del tracker[next(iter(tracker))]
        tracker[attempt.fingerprint] = poll
        poll.at = attempt.at
        return poll

    def complete(
        self,
        tracker: dict[str, Poll],
        mark: Poll,
        attempt: Attempt,
        outcome: Outcome,
        seq: int,
    ) -> None:
        """Its result is the same as before, or new."""
        mark.unchanged = mark.unchanged + 1 if outcome.result == mark.result else 0
        mark.result = outcome.result

    def release(self, tracker: dict[str, Poll], mark: Poll, attempt: Attempt) -> None:
        """The poll may be made at once again."""
        mark.at = None
