"""`polling`: a call that is meant to be repeated until its result changes."""

from __future__ import annotations

from collections.abc import Container

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.limits import Limit, Terms
from policyguard.evaluator.wording import seconds, times
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome
from policyguard.model.quantity import nanoseconds


class Poll:
    """One call being polled: when it was last admitted, and how often its result stayed.

    `wait` is how long its last result asks to wait for the next one (ns), `seq` the number of its
    completion.
    """

    __slots__ = ("at", "result", "seq", "unchanged", "wait")

    def __init__(self) -> None:
        self.at: int | None = None
        self.result: str | None = None
        self.unchanged = 0
        self.seq = 0
        self.wait = 0


class Polling(Limit):
    """Asks for `cooldown` nanoseconds between the same polls, and for a change after `unchanged`.

    What another call has changed meanwhile may be what is waited for: then it counts anew. Where a
    result says when to come back (`retry_after`), that holds if it is longer. Steps count
    the polls with one and the same result, the first of them included.

    At most `most` different polls are remembered, the least recently used is forgotten first.
    """

    __slots__ = ("cooldown", "most", "unchanged")

    counts = True

    def __init__(
        self,
        terms: Terms,
        *,
        cooldown: int | None,
        unchanged: int | None,
        most: int,
    ) -> None:
        super().__init__(terms, _NEVER if unchanged is None else unchanged)
        self.cooldown = cooldown
        self.unchanged = unchanged
        self.most = most

    def tracker(self) -> dict[str, Poll]:
        """No polls yet."""
        return {}

    def seen(self, tracker: dict[str, Poll]) -> Container[str] | None:
        """The polls that are remembered."""
        return tracker

    def judge(
        self, tracker: dict[str, Poll], attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """Too soon, or unchanged too often."""
        poll = tracker.get(attempt.fingerprint)
        if poll is None:
            return None
        same = 0 if poll.result is None else poll.unchanged + 1
        if changes.since(attempt.fingerprint) > poll.seq:
            same = insisted = 0
        over = same > self.max
        height = same + insisted + 1
        left = self._left(poll, attempt)
        effect = self.ladder.answer(height, over=over or left > 0)
        if effect is None:
            return None
        if left > 0 and not over:
            return Violation(
                f"{self.id}/cooldown",
                effect,
                "polling",
                f"the same poll may be made once in {seconds(max(self.cooldown or 0, poll.wait))}",
                "wait, or do something else meanwhile",
                retry_after=left / 1e9,
            )
        return Violation(
            f"{self.id}/unchanged",
            effect,
            "polling",
            f"this poll's result has stayed the same {times(max(same - 1, 0))}",
            "stop waiting for it: look at what it waits for, or finish with what you have",
            max(same - 1, 0),
            self.unchanged,
        )

    def _left(self, poll: Poll, attempt: Attempt) -> int:
        """Nanoseconds until the poll may be made again."""
        wait = max(self.cooldown or 0, poll.wait)
        if not wait or attempt.at is None or poll.at is None:
            return 0
        return poll.at + wait - attempt.at

    def admit(self, tracker: dict[str, Poll], attempt: Attempt) -> None:
        """The poll is the most recently used."""
        poll = tracker.pop(attempt.fingerprint, None)
        if poll is None:
            poll = Poll()
            if len(tracker) >= self.most:
                del tracker[next(iter(tracker))]
        elif attempt.session.changes.since(attempt.fingerprint) > poll.seq:
            poll.result = None
            poll.unchanged = 0
        tracker[attempt.fingerprint] = poll
        poll.at = attempt.at
        attempt.mark(self.id, poll)

    def complete(self, tracker: dict[str, Poll], attempt: Attempt, outcome: Outcome) -> None:
        """Its result is the same as before, or new."""
        poll: Poll = attempt.marks[self.id]
        poll.unchanged = poll.unchanged + 1 if outcome.result == poll.result else 0
        poll.result = outcome.result
        poll.seq = attempt.call.seq
        poll.wait = nanoseconds(outcome.retry_after)

    def release(self, tracker: dict[str, Poll], attempt: Attempt) -> None:
        """The poll may be made at once again."""
        attempt.marks[self.id].at = None


_NEVER = 1 << 62
"""Where a policy does not bound the polls with one result."""
