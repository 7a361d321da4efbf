"""Bans by limits, beyond the call that reached them: `refuse: tool`, and `until`.

A limit by itself refuses while its own window is full. With `refuse: tool` it bans the whole tool,
with `until` it refuses until something advances, or the turn or session ends.
"""

from __future__ import annotations

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class LimitBan:
    """A tool, or one subject of a limit, that is refused for now.

    `result_fingerprint` is that of the result which brought it about.
    """

    __slots__ = ("full_name", "limit", "result_fingerprint", "subject", "text", "tool", "until")

    def __init__(
        self, limit: LimitChecker, attempt: Attempt, text: str, result_fingerprint: str
    ) -> None:
        self.limit = limit
        self.subject = limit.subject(attempt)
        self.tool = attempt.shown_tool
        self.full_name = attempt.full_name
        self.text = text
        self.result_fingerprint = result_fingerprint
        self.until = limit.until or "session"

    def applies_to(self, attempt: Attempt) -> bool:
        """Whether the ban concerns this attempt: its tool, or a subject under the limit."""
        if self.limit.refuse_tool:
            return attempt.full_name == self.full_name
        return (
            self.limit in attempt.bound_plan.plan.limits
            and self.limit.subject(attempt) == self.subject
        )

    @property
    def duration_text(self) -> str:
        """When the ban ends, in words."""
        return _DURATION_TEXTS[self.until]

    def violation(self, refused_count: int) -> Violation | None:
        """Return the violation of an attempt that the ban applies to."""
        limit = self.limit
        effect = limit.escalation.effect_at(limit.max + refused_count + 1, limit_reached=True)
        if effect is None or effect is Effect.ALLOW:
            return None
        what = "this tool is disabled" if limit.refuse_tool else "this call is refused"
        return Violation(
            limit.id,
            effect,
            "disabled",
            f"{what} {self.duration_text}: {self.text}",
            "report what you are missing and continue without this tool",
            limit.max,
            limit.max,
        )


_DURATION_TEXTS = {
    "progress": "until something else makes progress",
    "turn": "for the rest of this turn",
    "session": "for the rest of this run",
}


class Bans(msgspec.Struct, eq=False):
    """The bans of one session, at most `max_bans`; the oldest goes first."""

    max_bans: int
    active: dict[tuple[str, str], LimitBan] = msgspec.field(default_factory=dict)

    def add(self, ban: LimitBan) -> None:
        """Add a ban, unless there is one of the same tool or subject."""
        name = ban.full_name if ban.limit.refuse_tool else ban.subject
        self.active.setdefault((ban.limit.id, name), ban)
        if len(self.active) > self.max_bans:
            del self.active[next(iter(self.active))]

    def lift_on_progress(self, outcome: Outcome) -> list[LimitBan]:
        """Lift the bans that a new result ends, and return them."""
        lifted = [
            (name, ban)
            for name, ban in self.active.items()
            if ban.until == "progress" and ban.result_fingerprint != outcome.result_fingerprint
        ]
        for name, _ in lifted:
            del self.active[name]
        return [ban for _, ban in lifted]

    def end_turn(self) -> None:
        """Lift bans for the turn, and those until progress in what was counted per turn."""
        self.active = {
            name: ban
            for name, ban in self.active.items()
            if ban.until != "turn" and not (ban.until == "progress" and ban.limit.per_turn)
        }
