"""What a policy says to an attempt, and how it is taken."""

from __future__ import annotations

from typing import Literal

import msgspec

from policyguard.model.decision import EvalError, Violation
from policyguard.model.effect import Effect

ApproverPresence = Literal["nobody", "somebody", "never"]
"""Who may be asked: nobody is there, somebody is, or (in a replay) it is not asked at all."""


class GuardMode(msgspec.Struct, frozen=True):
    """How a guard takes a policy: with `observe` nothing is refused, what would be is said."""

    observe: bool
    approver_presence: ApproverPresence


class Evaluation(msgspec.Struct, frozen=True):
    """What the policy says to an attempt. `would` comes from entries in observe mode.

    `passes`: it asks, and what it says of unanswered questions lets the call run. `left` is what
    remains of the budgets that a refused call would have drawn on.
    """

    effect: Effect
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    errors: tuple[EvalError, ...]
    runs_unapproved: bool = False
    remaining: dict[str, float] = {}

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self.effect is Effect.ALLOW or self.effect is Effect.ADVISE or self.runs_unapproved


ALLOWED = Evaluation(Effect.ALLOW, (), (), ())
"""To a call that nothing has anything against."""
