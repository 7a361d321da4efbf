"""Escalation: how strongly a limit or budget reacts as an agent insists.

A limit's `max` counts admitted calls, its thresholds count attempts, refused ones too. Each success
of another call offsets one refused attempt, so an agent that changes course de-escalates.
"""

from __future__ import annotations

import msgspec

from policyguard.model.effect import Effect


class Escalation:
    """The effect once a limit is reached, and the thresholds before and beyond it.

    `thresholds` are pairs of a count and an effect: from that count on, at least that effect.
    """

    __slots__ = ("effect", "lowest_threshold", "thresholds")

    def __init__(
        self,
        effect: Effect,
        *,
        advise_at: int | None = None,
        ask_at: int | None = None,
        halt_at: int | None = None,
    ) -> None:
        self.effect = effect
        levels = ((halt_at, Effect.HALT), (ask_at, Effect.ASK), (advise_at, Effect.ADVISE))
        self.thresholds = tuple((count, level) for count, level in levels if count is not None)
        self.lowest_threshold = min((count for count, _ in self.thresholds), default=None)

    def effect_at(self, count: int, *, limit_reached: bool) -> Effect | None:
        """Return the strongest effect at this count of attempts; None where there is none."""
        reached = self.effect if limit_reached else None
        for threshold, effect in self.thresholds:
            if count >= threshold:
                return effect if reached is None or effect > reached else reached
        return reached


class RefusedAttempts(msgspec.Struct, eq=False):
    """A limit's refused attempts by subject, in one turn.

    At most `max_subjects` are kept; the one refused longest ago goes first.
    """

    max_subjects: int
    attempts: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def count(self, subject: str, successes: int) -> int:
        """Return how many stand; `successes` is how many calls have succeeded so far."""
        attempts = self.attempts.get(subject)
        return max(0, attempts[0] - (successes - attempts[1])) if attempts is not None else 0

    def add(self, subject: str, successes: int) -> None:
        """Count one more refused attempt."""
        count = self.count(subject, successes) + 1
        self.attempts.pop(subject, None)
        self.attempts[subject] = (count, successes)
        if len(self.attempts) > self.max_subjects:
            del self.attempts[next(iter(self.attempts))]

    def drop_offset(self, successes: int) -> None:
        """Forget subjects whose attempts are offset, the oldest first."""
        attempts = self.attempts
        while attempts:
            subject = next(iter(attempts))
            if self.count(subject, successes):
                return
            del attempts[subject]

    def clear(self, subject: str) -> None:
        """Forget a subject whose call was admitted."""
        self.attempts.pop(subject, None)
