"""Compiled exceptions: dated waivers of entries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.model.decision import Violation, Waiver
from policyguard.model.errors import ExpressionError


class CompiledException(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """An exception. `ends_at` is the first instant (ns) at which it holds no more."""

    id: str
    when: Expression | None
    ends_at: int

    def applies_to(self, attempt: Attempt) -> bool:
        """Whether the exception holds for a call.

        Not where that is undecidable: for a call without a time, and if `when` fails.
        """
        at = attempt.at if attempt.wall is None else attempt.wall
        if at is None or at >= self.ends_at:
            return False
        if self.when is None:
            return True
        try:
            answer = self.when(attempt.activation)
        except ExpressionError as error:
            attempt.add_error(self.id, error)
            return False
        if not isinstance(answer, bool):
            attempt.add_error(self.id, "`when` is not a bool")
        return answer is True


class ExceptionSet:
    """The exceptions of a policy, by the ids of the violations that they waive."""

    def __init__(self, by_violation: Mapping[str, tuple[CompiledException, ...]]) -> None:
        self._by_violation = by_violation

    def covers(self, violation: str) -> bool:
        """Whether an exception may waive this violation."""
        return violation in self._by_violation

    def find(self, violation: str, attempt: Attempt) -> str:
        """Return the id of the exception that waives a call's violation; empty for none."""
        for exception in self._by_violation.get(violation, ()):
            if exception.applies_to(attempt):
                return exception.id
        return ""

    def waive(
        self, attempt: Attempt, violations: list[Violation]
    ) -> tuple[list[Violation], tuple[Waiver, ...]]:
        """Split a call's violations into those that stand and those that are waived."""
        standing: list[Violation] = []
        waived: list[Waiver] = []
        for violation in violations:
            exception = self.find(violation.id, attempt)
            if exception:
                waived.append(Waiver(violation.id, exception))
            else:
                standing.append(violation)
        return standing, tuple(waived)
