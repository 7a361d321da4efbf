"""Who tells of calls, as they are admitted and completed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.plan import Plan
from policyguard.guard import decisions
from policyguard.journal import line_template as marks
from policyguard.journal.journal import Journal
from policyguard.journal.line_template import LineTemplate
from policyguard.model.constraint import Observation
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, Charge, Completed, Event
from policyguard.model.outcome import Outcome


class CallEventEmitter:
    """Makes events of calls, and hands them on; with True they are to be anchored."""

    __slots__ = ("_emit",)

    def __init__(self, emit: Callable[[Event, bool], None]) -> None:
        self._emit = emit

    def emit_admitted(self, attempt: Attempt, decision: Decision) -> None:
        """A call was let through."""
        self._emit(decisions.build_admitted(attempt.session.id, attempt, decision), False)

    def emit_completed(
        self,
        event: Completed,
        at: int | None,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        observations: tuple[Observation, ...],
        has_learned: bool,
    ) -> None:
        """A call has its result, judged; with `taught` it has made or confirmed a constraint."""
        self._emit(
            decisions.build_completed(event, at, outcome, charges, observations), has_learned
        )


class _HostIds(msgspec.Struct, omit_defaults=True):
    """The host's ids of a call, named and in order as in `Admitted`."""

    batch: str = ""
    host_call: str = ""


class _ResultNumbers(msgspec.Struct, omit_defaults=True):
    """What a host may say of a result beside its text, named and in order as in `Completed`."""

    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None


_PLACEHOLDER_NUMBERS = {**dict.fromkeys(_ResultNumbers.__struct_fields__), "exit_code": marks.EXTRA}
"""In place of a result's numbers: none, but for the mark of where they stand."""


class FastCallEmitter(CallEventEmitter):
    """Writes ordinary calls into a journal that alone hears of them, without an event for each.

    A call is ordinary if there is no more to tell of it than what its plan says, its fingerprint,
    batch and charges; a result if it is a success with a text, numbers and charges. Nearly all are.
    What their lines have in common is found out at the first one of each of `plans` plans (see
    `journal.form`). A form is filled in at two places, since one for both would be one frame more
    a line, a hundredth of a check.
    """

    __slots__ = (
        "_changing_templates",
        "_journal",
        "_max_line",
        "_max_plans",
        "_result_templates",
        "_unchanging_templates",
    )

    def __init__(self, journal: Journal, max_plans: int) -> None:
        super().__init__(journal.write)
        self._journal = journal
        self._max_line = journal.max_field_bytes
        self._max_plans = max_plans
        self._changing_templates: dict[Plan, LineTemplate | None] = {}
        self._unchanging_templates: dict[Plan, LineTemplate | None] = {}
        self._result_templates: dict[str, LineTemplate | None] = {}

    def emit_admitted(self, attempt: Attempt, decision: Decision) -> None:
        """A call was let through."""
        if (
            attempt.at is None
            or attempt.tags
            or attempt.hints
            or attempt.estimate
            or attempt.targets
            or attempt.loose_fingerprint
            or attempt.probes
            or decision.violations
            or not attempt.args
            or not attempt.id.isalnum()
        ):
            super().emit_admitted(attempt, decision)
            return
        plan = attempt.bound_plan.plan
        changing = plan.cached_answer  # it has no hints
        if changing is None:
            changing = plan.is_state_changing(attempt)
        try:
            form = (self._changing_templates if changing else self._unchanging_templates)[plan]
        except KeyError:
            form = self._add_template(attempt, decision)
        more: str | None = ""
        if attempt.batch or attempt.host_call:
            more = _encode_fields(_HostIds(attempt.batch, attempt.host_call))
        drawn = _encode_fields({"charges": attempt.charges}) if attempt.charges else ""
        if form is None or more is None or drawn is None:
            super().emit_admitted(attempt, decision)
            return
        journal, session = self._journal, attempt.session.id
        writer = journal.current_file
        if writer is None or writer.session != session:
            writer = journal.switch_to(session)
        a, b, c, d, e, f, g, h = form
        fingerprint = attempt.fingerprint
        line = (
            f"{a}{writer.session_json}{b}{attempt.at}{c}{attempt.id}{d}{fingerprint}{e}{more}{f}"
            f"{fingerprint}{g}{drawn}{h}"
        )
        if len(line) > self._max_line:
            super().emit_admitted(attempt, decision)
        else:
            writer.append(line, True, False)

    def emit_completed(
        self,
        event: Completed,
        at: int | None,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        observations: tuple[Observation, ...],
        has_learned: bool,
    ) -> None:
        """A call has its result, judged."""
        if (
            at is None
            or not event.text
            or event.meta
            or event.provenance != "explicit"
            or outcome.state != "success"
            or outcome.signature
            or observations
            or not event.call.isalnum()
        ):
            super().emit_completed(event, at, outcome, charges, observations, has_learned)
            return
        try:
            form = self._result_templates[outcome.state]
        except KeyError:
            judged = decisions.build_completed(event, at, outcome, charges, observations)
            marked = replace(judged, result_fingerprint=marks.FINGERPRINT, **_PLACEHOLDER_NUMBERS)
            form = self._result_templates[outcome.state] = self._build_template(marked)
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
            numbers = _ResultNumbers(
                event.exit_code,
                event.status,
                event.retry_after,
                event.duration,
                event.tokens,
                event.cost,
                event.score,
            )
            more = _encode_fields(numbers)
        drawn = _encode_fields({"charges": charges}) if charges else ""
        if form is None or more is None or drawn is None:
            super().emit_completed(event, at, outcome, charges, observations, has_learned)
            return
        journal, session = self._journal, event.session
        writer = journal.current_file
        if writer is None or writer.session != session:
            writer = journal.switch_to(session)
        a, b, c, d, e, f, g, h = form
        fingerprint = outcome.result_fingerprint
        line = (
            f"{a}{writer.session_json}{b}{at}{c}{event.call}{d}{fingerprint}{e}{more}{f}"
            f"{fingerprint}{g}{drawn}{h}"
        )
        if len(line) > self._max_line:
            super().emit_completed(event, at, outcome, charges, observations, has_learned)
        else:
            writer.append(line, True, False)

    def _add_template(self, attempt: Attempt, decision: Decision) -> LineTemplate | None:
        """The form of calls of a plan that change state, or do not, of which this is one."""
        plan = attempt.bound_plan.plan
        forms = (
            self._changing_templates
            if plan.is_state_changing(attempt)
            else self._unchanging_templates
        )
        if len(forms) >= self._max_plans:
            forms.clear()
        event = decisions.build_admitted(attempt.session.id, attempt, decision)
        marked = replace(event, batch=str(marks.EXTRA), host_call="", fingerprint=marks.FINGERPRINT)
        form = forms[plan] = None if plan.keyed_limits else self._build_template(marked)
        return form

    def _build_template(self, event: Admitted | Completed) -> LineTemplate | None:
        """The form of such events."""
        marked = replace(
            event, session=marks.SESSION, at=marks.AT, call=marks.CALL, charges=(marks.CHARGE,)
        )
        return self._journal.line_template(marked)


def _encode_fields(values: _HostIds | _ResultNumbers | dict[str, Any]) -> str | None:
    """These fields in JSON, to stand after others; None for what JSON does not hold as it is."""
    try:
        return f",{msgspec.json.encode(values)[1:-1].decode()}"
    except (OverflowError, TypeError, UnicodeError):
        return None
