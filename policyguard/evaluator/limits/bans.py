"""What a limit has shut off beyond the call that reached it: `refuse: tool`, and `until`.

A limit by itself refuses as long as its own window says so. With `refuse: tool` it takes the whole
tool away, and with `until` it refuses until something advances, the turn or the session ends.
"""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class Ban:
    """One tool, or one subject of a limit, that is refused for now.

    `result` is what came of the call that brought it about.
    """

    __slots__ = ("full_name", "limit", "result_fingerprint", "subject", "text", "tool", "until")

    def __init__(self, limit: LimitChecker, attempt: Attempt, text: str, result: str) -> None:
        self.limit = limit
        self.subject = limit.subject(attempt)
        self.tool = attempt.tool
        self.full_name = attempt.full_name
        self.text = text
        self.result_fingerprint = result
        self.until = limit.settings.until or "session"

    def applies_to(self, attempt: Attempt) -> bool:
        """Whether it is about this attempt."""
        if self.limit.settings.refuse_tool:
            return attempt.full_name == self.full_name
        return self.limit.subject(attempt) == self.subject

    @property
    def duration_text(self) -> str:
        """When it ends, in words."""
        return _DURATION_TEXTS[self.until]

    def violation(self, refused_count: int) -> Violation | None:
        """What it has against an attempt that it binds."""
        limit = self.limit
        effect = limit.escalation.effect_at(limit.max + refused_count + 1, limit_reached=True)
        if effect is None or effect is Effect.ALLOW:
            return None
        what = "this tool is off" if limit.settings.refuse_tool else "this call is refused"
        return Violation(
            limit.id,
            effect,
            "disabled",
            f"{what} {self.duration_text}: {self.text}",
            "say what is missing and go on without it",
            limit.max,
            limit.max,
        )


_DURATION_TEXTS = {
    "progress": "until something else brings progress",
    "turn": "for the rest of this turn",
    "session": "for the rest of this run",
}


class Bans:
    """The bans of one session. At most `most`; the oldest goes first."""

    __slots__ = ("active", "max_bans")

    def __init__(self, max_bans: int) -> None:
        self.max_bans = max_bans
        self.active: dict[tuple[str, str], Ban] = {}

    def add(self, ban: Ban) -> None:
        """Shut a tool or subject off; one that is shut off stays so as it was."""
        name = ban.full_name if ban.limit.settings.refuse_tool else ban.subject
        self.active.setdefault((ban.limit.id, name), ban)
        if len(self.active) > self.max_bans:
            del self.active[next(iter(self.active))]

    def lift_on_progress(self, outcome: Outcome) -> list[Ban]:
        """Lift what something new lifts. Returns what was lifted."""
        lifted = [
            (name, ban)
            for name, ban in self.active.items()
            if ban.until == "progress" and ban.result_fingerprint != outcome.result_fingerprint
        ]
        for name, _ in lifted:
            del self.active[name]
        return [ban for _, ban in lifted]

    def end_turn(self) -> None:
        """Lift what lasts for a turn, and what waits for progress in what was counted per turn."""
        self.active = {
            name: ban
            for name, ban in self.active.items()
            if ban.until != "turn" and not (ban.until == "progress" and ban.limit.per_turn)
        }
