"""The evaluator's result for one attempt, and the mode it is evaluated in."""

from __future__ import annotations

from typing import Literal

import msgspec

from policyguard.model.decision import EvalError, Violation, Waiver
from policyguard.model.effect import Effect
from policyguard.model.grant import Grant

ApproverPresence = Literal["absent", "present", "never"]
"""Whether there is an approver; `never` in a replay, where unanswered questions refuse."""


INTERNAL_ERROR = "internal"
"""The id of the violation of a call on which policyguard itself failed."""


class GuardMode(msgspec.Struct, frozen=True):
    """With `observe` nothing is refused; what would be is reported."""

    observe: bool
    approver_presence: ApproverPresence


class Evaluation(msgspec.Struct, frozen=True):
    """What a policy says of an attempt. `would` comes from entries in observe mode.

    `runs_unapproved`: the call asks, and its requirements let it run unanswered. `remaining` is
    what remains of the budgets that a refused call would charge; `time_budgets` are those among
    them whose unit is the second, `units` has words for the others. `grants` lifted what would have
    asked, `waived` are the violations that exceptions have waived.
    """

    effect: Effect
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    errors: tuple[EvalError, ...]
    runs_unapproved: bool = False
    remaining: dict[str, float] = {}
    time_budgets: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    waived: tuple[Waiver, ...] = ()
    units: dict[str, str] = {}

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self.effect is Effect.ALLOW or self.effect is Effect.ADVISE or self.runs_unapproved


ALLOWED = Evaluation(Effect.ALLOW, (), (), ())
"""The evaluation of a call without violations."""


def sort_by_strength(found: list[Violation]) -> tuple[Violation, ...]:
    """Return violations, the strongest first, and of these those that are certain."""
    return tuple(sorted(found, key=_rank, reverse=True))


def _rank(violation: Violation) -> tuple[int, bool]:
    return violation.effect.strength, not violation.doubt


def strength_of(violation: Violation) -> int:
    """Return the strength of a violation's effect."""
    return violation.effect.strength
