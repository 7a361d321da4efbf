"""Bans by limits, beyond the call that reached them: `refuse: tool`, and `until`.

A limit by itself refuses while its own window is full. With `refuse: tool` it bans the whole tool,
with `until` it refuses until something advances, the tool itself succeeds, or the turn or session
ends.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.probes import ProbeSchedule
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class LimitBan:
    """A tool, or one subject of a limit, that is refused for now.

    `result_fingerprint` is that of the result which brought it about. A ban `until: success` has
    `probes`: calls that were not tried yet, which it admits so that one of them can succeed.
    """

    __slots__ = (
        "full_name",
        "limit",
        "probes",
        "result_fingerprint",
        "subject",
        "text",
        "tool",
        "until",
    )

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
        self.probes: ProbeSchedule | None = None
        blocks = limit.max > 0 and limit.escalation.effect is Effect.BLOCK
        if self.until == "success" and blocks and limit.judges_arguments:
            self.probes = ProbeSchedule(limit.max, tried={attempt.likeness: None})

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

    @property
    def ends_with_turn(self) -> bool:
        """Whether a new turn lifts the ban, as it resets what a limit counts per turn."""
        return self.until == "turn" or (
            self.until in ("progress", "success") and self.limit.per_turn
        )

    def violation(self, refused_count: int) -> Violation | None:
        """Return the violation of an attempt that the ban applies to."""
        limit = self.limit
        effect = limit.escalation.effect_at(limit.max + refused_count + 1, limit_reached=True)
        if effect is None or effect is Effect.ALLOW:
            return None
        return Violation(
            limit.id,
            effect,
            "disabled",
            f"{self._what} {self.duration_text}: {self.text}",
            "report what you are missing and continue without this tool",
            limit.max,
            limit.max,
        )

    def probe_advice(self) -> Violation:
        """Return what a probe's caller is advised of."""
        text = (
            f"{self._what} {self.duration_text}: {self.text}; this call is new, and is tried once"
        )
        return Violation(self.limit.id, Effect.ADVISE, "disabled", text, _PROBED)

    @property
    def _what(self) -> str:
        return "this tool is disabled" if self.limit.refuse_tool else "this call is refused"

    def ends_with(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Whether a success that advances lifts the ban: it has brought something new."""
        if outcome.result_fingerprint == self.result_fingerprint:
            return False
        return self.until == "progress" or (self.until == "success" and self.applies_to(attempt))


_PROBED = "if it brings nothing new either, report what you are missing"
_DURATION_TEXTS = {
    "progress": "until something else makes progress",
    "success": "until a call of it brings something new",
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

    def lift(self, attempt: Attempt, outcome: Outcome) -> list[LimitBan]:
        """Lift the bans that a new result ends, and return them."""
        lifted = [
            (name, ban) for name, ban in self.active.items() if ban.ends_with(attempt, outcome)
        ]
        for name, _ in lifted:
            del self.active[name]
        return [ban for _, ban in lifted]

    def end_turn(self) -> None:
        """Lift bans for the turn, and those until something new in what was counted per turn."""
        self.active = {name: ban for name, ban in self.active.items() if not ban.ends_with_turn}

    def violation(
        self, ban: LimitBan, attempt: Attempt, refused_count: int, other: Violation | None
    ) -> Violation | None:
        """Return what takes the place of the limit's `other` violation; None if that stays.

        The stronger of both stays, but for a probe, which the limit itself would refuse.
        """
        if self.is_next_probe(ban, attempt):
            return ban.probe_advice()
        violation = ban.violation(refused_count)
        if violation is None or (other is not None and other.effect >= violation.effect):
            return None
        return violation

    def is_next_probe(self, ban: LimitBan, attempt: Attempt) -> bool:
        """Whether a ban admits an attempt that it applies to, for it may bring something new."""
        probes = ban.probes
        return probes is not None and probes.is_due(attempt, self.max_bans, ban.limit.probe_timeout)

    def admit(self, attempt: Attempt) -> None:
        """Take an admitted call as the probe of each ban that admits it."""
        for ban, probes in self._probed_by(attempt):
            if self.is_next_probe(ban, attempt):
                probes.begin(attempt)
            else:  # approved, or admitted by the mode `observe`
                probes.refuse(attempt, ban.limit.probe_timeout)

    def refuse(self, attempt: Attempt, violations: Container[str]) -> None:
        """Count an attempt that a ban refused, among `violations`: the next probe comes nearer."""
        for ban, probes in self._probed_by(attempt):
            if ban.limit.id in violations and not self.is_next_probe(ban, attempt):
                probes.refuse(attempt, ban.limit.probe_timeout)

    def complete(self, attempt: Attempt, outcome: Outcome) -> None:
        """Note a probe that has lifted no ban: the next waits longer."""
        for _, probes in self._probed_by(attempt):
            if outcome.state == "pending" or outcome.harness_flagged:
                probes.end(attempt)
            elif probes.probe is attempt:
                probes.end(attempt)
                probes.add_failure(attempt, self.max_bans, is_probe=True)

    def cancel(self, attempt: Attempt) -> None:
        """Let another call be the probe, but not sooner than after a failed one."""
        for _, probes in self._probed_by(attempt):
            probes.cancel(attempt)

    def release(self, attempt: Attempt) -> None:
        """Let another call be the probe."""
        for _, probes in self._probed_by(attempt):
            probes.end(attempt)

    def _probed_by(self, attempt: Attempt) -> Iterator[tuple[LimitBan, ProbeSchedule]]:
        for ban in self.active.values():
            if ban.probes is not None and ban.applies_to(attempt):
                yield ban, ban.probes
