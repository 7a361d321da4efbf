"""Ordinary calls, written down without an event for each: what there is most of is made short."""

from __future__ import annotations

from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.plan import Plan
from policyguard.guard import answers
from policyguard.guard.teller import Teller
from policyguard.journal import form as marks
from policyguard.journal.form import Form
from policyguard.journal.journal import Journal
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, Charge, Completed
from policyguard.model.outcome import Outcome


class Scribe(Teller):
    """Writes ordinary calls into a journal that alone hears of them, without an event for each.

    A call is ordinary if there is no more to tell of it than what its plan says and its
    fingerprint, a result if it is a success with a text. Nearly all are. What their lines have in
    common is found out at the first one of each of `plans` plans (see `journal.form`).
    """

    __slots__ = ("_fill", "_forms", "_journal", "_most")

    def __init__(self, journal: Journal, plans: int) -> None:
        super().__init__(journal.write)
        self._journal = journal
        self._fill = journal.fill
        self._forms: dict[tuple[Plan, bool] | None, Form | None] = {}
        self._most = 2 * plans + 1

    def admitted(self, attempt: Attempt, decision: Decision) -> None:
        """A call was let through."""
        if (
            attempt.at is None
            or attempt.batch
            or attempt.tags
            or attempt.hints
            or attempt.estimate
            or attempt.targets
            or attempt.like
            or attempt.keys
            or attempt.trials
            or attempt.charges
            or decision.violations
            or not attempt.args
        ):
            super().admitted(attempt, decision)
            return
        plan, session, fingerprint = attempt.walk.plan, attempt.session.id, attempt.fingerprint
        kind = plan, plan.changes(attempt)
        try:
            form = self._forms[kind]
        except KeyError:
            event = answers.admitted(session, attempt, decision)
            form = self._found(kind, replace(event, fingerprint=marks.FINGERPRINT))
        if form is None or not self._fill(form, session, attempt.at, attempt.id, fingerprint):
            super().admitted(attempt, decision)

    def completed(
        self,
        event: Completed,
        at: int | None,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        lessons: tuple[Lesson, ...],
        taught: bool,
    ) -> None:
        """A call has its result, judged."""
        if (
            at is None
            or not event.text
            or event.exit_code is not None
            or event.status is not None
            or event.retry_after is not None
            or event.duration is not None
            or event.tokens is not None
            or event.cost is not None
            or event.score is not None
            or event.meta
            or event.known != "explicit"
            or outcome.state != "success"
            or outcome.signature
            or charges
            or lessons
        ):
            super().completed(event, at, outcome, charges, lessons, taught)
            return
        try:
            form = self._forms[None]
        except KeyError:
            judged = answers.completed(event, at, outcome, charges, lessons)
            form = self._found(None, replace(judged, result_fingerprint=marks.FINGERPRINT))
        if form is None or not self._fill(form, event.session, at, event.call, outcome.result):
            super().completed(event, at, outcome, charges, lessons, taught)

    def _found(self, kind: tuple[Plan, bool] | None, event: Admitted | Completed) -> Form | None:
        """The form of calls of this kind, of which this is one."""
        if len(self._forms) >= self._most:
            self._forms.clear()
        marked = replace(event, session=marks.SESSION, at=marks.AT, call=marks.CALL)
        form = self._forms[kind] = self._journal.form(marked)
        return form
