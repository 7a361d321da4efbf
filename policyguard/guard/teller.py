"""Who tells of calls, as they are admitted and completed."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.evaluator.attempt import Attempt
from policyguard.guard import answers
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Decision
from policyguard.model.event import Charge, Completed, Event
from policyguard.model.outcome import Outcome


class Teller:
    """Makes events of calls, and hands them on; with True they are to be anchored."""

    __slots__ = ("_emit",)

    def __init__(self, emit: Callable[[Event, bool], None]) -> None:
        self._emit = emit

    def admitted(self, attempt: Attempt, decision: Decision) -> None:
        """A call was let through."""
        self._emit(answers.admitted(attempt.session.id, attempt, decision), False)

    def completed(
        self,
        event: Completed,
        at: int | None,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        lessons: tuple[Lesson, ...],
        taught: bool,
    ) -> None:
        """A call has its result, judged; with `taught` it has made or confirmed a constraint."""
        self._emit(answers.completed(event, at, outcome, charges, lessons), taught)
