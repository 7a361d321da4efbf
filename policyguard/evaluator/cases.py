"""The cases of a rule: read in order, the first that matches decides.

A case that may match, for all that can be decided, counts both ways: the rest is read too, and the
stricter result holds. So an error lets no call through by a case that allows it, nor does a command
of which only a part is listed there.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from policyguard.evaluator.activation import Doubt, Expression, Selects
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.messages import MessageTemplate
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError

Match = Literal["no", "maybe", "yes"]


class CompiledCase(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A case; its selectors on names are resolved into the plans that hold it.

    `selects` are its selectors on what a call says, `covers` whether they hold for all of it. With
    `is_certain` so do those on names. `doubts` say where they are not certain. `on_error` is the
    effect if the case's CEL fails.
    """

    id: str
    selects: Selects | None
    covers: Selects | None
    is_certain: bool
    when: Expression | None
    unless: Expression | None
    effect: Effect
    on_error: Effect
    message: MessageTemplate | None
    instead: MessageTemplate | None
    doubts: tuple[Doubt, ...] = ()

    @property
    def is_unconditional(self) -> bool:
        """Whether it matches every call of the plans that hold it."""
        return self.is_certain and self.selects is self.when is self.unless is None

    def match(self, attempt: Attempt) -> tuple[Match, str]:
        """Return whether the case matches, and the error that leaves this open."""
        activation = attempt.activation
        if self.selects is not None and not self.selects(activation):
            return "no", ""
        is_certain = self.is_certain and (self.covers is None or self.covers(activation))
        error = ""
        for name, condition, holds in (("when", self.when, True), ("unless", self.unless, False)):
            if condition is None:
                continue
            try:
                answer = condition(activation)
            except ExpressionError as caught:
                error = error or str(caught)
                continue
            if answer is not holds:
                if isinstance(answer, bool):
                    return "no", ""
                error = error or f"`{name}` is not a bool"
        if error:
            return "maybe", attempt.add_error(self.id, error)
        return ("yes" if is_certain else "maybe"), ""


class CaseResult(msgspec.Struct, frozen=True, eq=False):
    """A case that may decide on a call, with the effect; `error` is what its CEL failed with."""

    case: CompiledCase
    effect: Effect
    error: str = ""


def decide(cases: tuple[CompiledCase, ...], attempt: Attempt) -> list[CaseResult]:
    """Return the cases that may decide, the strictest first; up to the first that certainly does.

    All of them, since an exception or a grant for one of them is none for the others.
    """
    found: list[CaseResult] = []
    for case in cases:
        match, error = case.match(attempt)
        if match == "no":
            continue
        found.append(CaseResult(case, case.on_error if error else case.effect, error))
        if match == "yes":
            break
    return sorted(found, key=lambda one: one.effect.strength, reverse=True)
