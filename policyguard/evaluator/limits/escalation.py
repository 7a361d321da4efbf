"""How hard a limit or budget answers: its steps, and how long an agent has been insisting.

A limit's `max` counts admitted calls, its steps count attempts: those that were admitted and those
that were refused. Each success of another call takes one refused attempt back, so an agent that
changes course comes down the ladder, and one that insists climbs it.
"""

from __future__ import annotations

from policyguard.model.effect import Effect


class Escalation:
    """The effect once a limit is reached, and the steps before and beyond it.

    `steps` are pairs of a height and an effect: from that height on, at least that effect.
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
        wanted = ((halt_at, Effect.HALT), (ask_at, Effect.ASK), (advise_at, Effect.ADVISE))
        self.thresholds = tuple((height, step) for height, step in wanted if height is not None)
        self.lowest_threshold = min((height for height, _ in self.thresholds), default=None)

    def effect_at(self, count: int, *, limit_reached: bool) -> Effect | None:
        """The strongest effect at this height; None where there is none.

        `over` says that the limit itself is reached.
        """
        found = self.effect if limit_reached else None
        for least, effect in self.thresholds:
            if count >= least:
                return effect if found is None or effect > found else found
        return found


class RefusedAttempts:
    """Refused attempts by what they were about, one limit's in one session or turn.

    At most `most` subjects are remembered, the one that insisted longest ago goes first.
    """

    __slots__ = ("attempts", "max_subjects")

    def __init__(self, max_subjects: int) -> None:
        self.max_subjects = max_subjects
        self.attempts: dict[str, tuple[int, int]] = {}

    def count(self, subject: str, successes: int) -> int:
        """How many stand, `successes` being how many calls have succeeded so far."""
        found = self.attempts.get(subject)
        return max(0, found[0] - (successes - found[1])) if found is not None else 0

    def add(self, subject: str, successes: int) -> None:
        """One more attempt was refused."""
        count = self.count(subject, successes) + 1
        self.attempts.pop(subject, None)
        self.attempts[subject] = (count, successes)
        if len(self.attempts) > self.max_subjects:
            del self.attempts[next(iter(self.attempts))]

    def drop_offset(self, successes: int) -> None:
        """Forget what has been made up for, the longest ago first."""
        attempts = self.attempts
        while attempts:
            subject = next(iter(attempts))
            if self.count(subject, successes):
                return
            del attempts[subject]

    def clear(self, subject: str) -> None:
        """The call has been admitted: whoever insists now begins anew."""
        self.attempts.pop(subject, None)
