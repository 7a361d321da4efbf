"""The evaluator's result for one attempt, and the mode it is evaluated in."""

from __future__ import annotations

from typing import Literal

import msgspec

from policyguard.model.decision import EvalError, Violation, Waiver
from policyguard.model.effect import Effect

ApproverPresence = Literal["absent", "present", "never"]
"""Whether there is an approver; `never` in a replay, where unanswered questions refuse."""


class GuardMode(msgspec.Struct, frozen=True):
    """With `observe` nothing is refused; what would be is reported."""

    observe: bool
    approver_presence: ApproverPresence


class Evaluation(msgspec.Struct, frozen=True):
    """What a policy says of an attempt. `would` comes from entries in observe mode.

    `runs_unapproved`: the call asks, and its requirements let it run unanswered. `remaining` is
    what remains of the budgets that a refused call would charge; `time_budgets` are those among
    them whose unit is the second. `waived` are the violations that exceptions have waived.
    """

    effect: Effect
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    errors: tuple[EvalError, ...]
    runs_unapproved: bool = False
    remaining: dict[str, float] = {}
    time_budgets: tuple[str, ...] = ()
    waived: tuple[Waiver, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self.effect is Effect.ALLOW or self.effect is Effect.ADVISE or self.runs_unapproved


def sort_by_strength(found: list[Violation]) -> tuple[Violation, ...]:
    """Return violations with the strongest effect first."""
    return tuple(sorted(found, key=lambda violation: violation.effect.strength, reverse=True))


ALLOWED = Evaluation(Effect.ALLOW, (), (), ())
"""The evaluation of a call without violations."""
