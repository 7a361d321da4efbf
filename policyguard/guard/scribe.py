"""Ordinary calls, written down without an event for each: what there is most of is made short."""

from __future__ import annotations

from typing import Any

import msgspec
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


class _Numbers(msgspec.Struct, omit_defaults=True):
    """What a host may say of a result beside its text, named and in order as in `Completed`."""

    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None


_NUMBERS_MARKED = {**dict.fromkeys(_Numbers.__struct_fields__), "exit_code": marks.MORE}
"""In place of a result's numbers: none, but for the mark of where they stand."""


class Scribe(Teller):
    """Writes ordinary calls into a journal that alone hears of them, without an event for each.

    A call is ordinary if there is no more to tell of it than what its plan says, its fingerprint,
    batch and charges; a result if it is a success with a text, numbers and charges. Nearly all are.
    What their lines have in common is found out at the first one of each of `plans` plans (see
    `journal.form`). A form is filled in at two places, since one for both would be one frame more
    a line, a hundredth of a check.
    """

    __slots__ = ("_changing", "_journal", "_largest", "_most", "_results", "_still")

    def __init__(self, journal: Journal, plans: int) -> None:
        super().__init__(journal.write)
        self._journal = journal
        self._largest = journal.largest
        self._most = plans
        self._changing: dict[Plan, Form | None] = {}
        self._still: dict[Plan, Form | None] = {}
        self._results: dict[str, Form | None] = {}

    def admitted(self, attempt: Attempt, decision: Decision) -> None:
        """A call was let through."""
        if (
            attempt.at is None
            or attempt.tags
            or attempt.hints
            or attempt.estimate
            or attempt.targets
            or attempt.like
            or attempt.trials
            or decision.violations
            or not attempt.args
            or not attempt.id.isalnum()
        ):
            super().admitted(attempt, decision)
            return
        plan = attempt.walk.plan
        changing = plan.steady  # it has no hints
        if changing is None:
            changing = plan.changes(attempt)
        try:
            form = (self._changing if changing else self._still)[plan]
        except KeyError:
            form = self._learned(attempt, decision)
        more = _fields({"batch": attempt.batch}) if attempt.batch else ""
        drawn = _fields({"charges": attempt.charges}) if attempt.charges else ""
        if form is None or more is None or drawn is None:
            super().admitted(attempt, decision)
            return
        journal, session = self._journal, attempt.session.id
        writer = journal.latest
        if writer is None or writer.session != session:
            writer = journal.turned_to(session)
        a, b, c, d, e, f, g, h = form
        fingerprint = attempt.fingerprint
        line = (
            f"{a}{writer.name}{b}{attempt.at}{c}{attempt.id}{d}{fingerprint}{e}{more}{f}"
            f"{fingerprint}{g}{drawn}{h}"
        )
        if len(line) > self._largest:
            super().admitted(attempt, decision)
        else:
            writer.append(line, True, False)

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
            or event.meta
            or event.known != "explicit"
            or outcome.state != "success"
            or outcome.signature
            or lessons
            or not event.call.isalnum()
        ):
            super().completed(event, at, outcome, charges, lessons, taught)
            return
        try:
            form = self._results[outcome.state]
        except KeyError:
            judged = answers.completed(event, at, outcome, charges, lessons)
            marked = replace(judged, result_fingerprint=marks.FINGERPRINT, **_NUMBERS_MARKED)
            form = self._results[outcome.state] = self._found(marked)
        more: str | None = ""
        if not (
            event.exit_code is None
            and event.status is None
            and event.retry_after is None
            and event.duration is None
            and event.tokens is None
            and event.cost is None
            and event.score is None
        ):
            numbers = _Numbers(
                event.exit_code,
                event.status,
                event.retry_after,
                event.duration,
                event.tokens,
                event.cost,
                event.score,
            )
            more = _fields(numbers)
        drawn = _fields({"charges": charges}) if charges else ""
        if form is None or more is None or drawn is None:
            super().completed(event, at, outcome, charges, lessons, taught)
            return
        journal, session = self._journal, event.session
        writer = journal.latest
        if writer is None or writer.session != session:
            writer = journal.turned_to(session)
        a, b, c, d, e, f, g, h = form
        fingerprint = outcome.result
        line = (
            f"{a}{writer.name}{b}{at}{c}{event.call}{d}{fingerprint}{e}{more}{f}"
            f"{fingerprint}{g}{drawn}{h}"
        )
        if len(line) > self._largest:
            super().completed(event, at, outcome, charges, lessons, taught)
        else:
            writer.append(line, True, False)

    def _learned(self, attempt: Attempt, decision: Decision) -> Form | None:
        """The form of calls of a plan that change state, or do not, of which this is one."""
        plan = attempt.walk.plan
        forms = self._changing if plan.changes(attempt) else self._still
        if len(forms) >= self._most:
            forms.clear()
        event = answers.admitted(attempt.session.id, attempt, decision)
        marked = replace(event, batch=str(marks.MORE), fingerprint=marks.FINGERPRINT)
        form = forms[plan] = None if plan.keyed else self._found(marked)
        return form

    def _found(self, event: Admitted | Completed) -> Form | None:
        """The form of such events."""
        marked = replace(
            event, session=marks.SESSION, at=marks.AT, call=marks.CALL, charges=(marks.CHARGE,)
        )
        return self._journal.form(marked)


def _fields(told: _Numbers | dict[str, Any]) -> str | None:
    """These fields in JSON, to stand after others; None for what JSON does not hold as it is."""
    try:
        return f",{msgspec.json.encode(told)[1:-1].decode()}"
    except (OverflowError, TypeError, UnicodeError):
        return None
