"""What a limit has shut off beyond the call that reached it: `refuse: tool`, and `until`.

A limit by itself refuses as long as its own window says so. With `refuse: tool` it takes the whole
tool away, and with `until` it refuses until something advances, the turn or the session ends.
"""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits import Limit
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class Ban:
    """One tool, or one subject of a limit, that is refused for now.

    `result` is what came of the call that brought it about.
    """

    __slots__ = ("limit", "name", "result", "subject", "text", "tool", "until")

    def __init__(self, limit: Limit, attempt: Attempt, text: str, result: str) -> None:
        self.limit = limit
        self.subject = limit.subject(attempt)
        self.tool = attempt.tool
        self.name = attempt.full_name
        self.text = text
        self.result = result
        self.until = limit.terms.until or "session"

    def binds(self, attempt: Attempt) -> bool:
        """Whether it is about this attempt."""
        if self.limit.terms.refuse_tool:
            return attempt.full_name == self.name
        return self.limit.subject(attempt) == self.subject

    @property
    def over(self) -> str:
        """When it ends, in words."""
        return _OVER[self.until]

    def violation(self, insisted: int) -> Violation | None:
        """What it has against an attempt that it binds."""
        limit = self.limit
        effect = limit.ladder.answer(limit.max + insisted + 1, over=True)
        if effect is None or effect is Effect.ALLOW:
            return None
        what = "this tool is off" if limit.terms.refuse_tool else "this call is refused"
        return Violation(
            limit.id,
            effect,
            "disabled",
            f"{what} {self.over}: {self.text}",
            "say what is missing and go on without it",
            limit.max,
            limit.max,
        )


_OVER = {
    "progress": "until something else brings progress",
    "turn": "for the rest of this turn",
    "session": "for the rest of this run",
}


class Bans:
    """The bans of one session. At most `most`; the oldest goes first."""

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: dict[tuple[str, str], Ban] = {}

    def put(self, ban: Ban) -> None:
        """Shut a tool or subject off; one that is shut off stays so as it was."""
        name = ban.name if ban.limit.terms.refuse_tool else ban.subject
        self.held.setdefault((ban.limit.id, name), ban)
        if len(self.held) > self.most:
            del self.held[next(iter(self.held))]

    def advance(self, outcome: Outcome) -> list[Ban]:
        """Lift what something new lifts. Returns what was lifted."""
        lifted = [
            (name, ban)
            for name, ban in self.held.items()
            if ban.until == "progress" and ban.result != outcome.result
        ]
        for name, _ in lifted:
            del self.held[name]
        return [ban for _, ban in lifted]

    def end_turn(self) -> None:
        """Lift what lasts for a turn, and what waits for progress in what was counted per turn."""
        self.held = {
            name: ban
            for name, ban in self.held.items()
            if ban.until != "turn" and not (ban.until == "progress" and ban.limit.per_turn)
        }
