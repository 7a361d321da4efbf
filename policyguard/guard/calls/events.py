"""The one way out for events: a guard's journal, then its listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from policyguard.evaluator.attempt import Attempt, CallResult
from policyguard.evaluator.marks.compiled_mark import RUN_SCOPES
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.calls import decisions
from policyguard.guard.host_log import warn
from policyguard.guard.listeners import Listeners
from policyguard.journal.errors import JournalError
from policyguard.journal.line_template import (
    AT,
    CALL,
    CHARGE,
    EXTRA,
    FINGERPRINT,
    SESSION,
    LineTemplate,
)
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, Completed, Event, MarkChange, Marked
from policyguard.store.errors import StoreError

if TYPE_CHECKING:
    from policyguard.guard.candidate import Candidate
    from policyguard.journal.journal import Journal


class CallEventEmitter:
    """Writes events to the journal, if there is one, and hands them to the listeners."""

    __slots__ = ("_journal", "_listeners")

    def __init__(self, journal: Journal | None, listeners: Listeners) -> None:
        self._journal = journal
        self._listeners = listeners

    def write(self, event: Event, anchor: bool = False) -> None:
        """Write an event; with `anchor` also its anchor. `JournalError`, `StoreError`."""
        if self._journal is not None:
            self._journal.write(event, anchor)

    def notify(self, event: Event) -> None:
        """Hand an event to the listeners."""
        self._listeners.notify(event)

    def emit(self, event: Event, anchor: bool = False) -> None:
        """Write an event and hand it to the listeners."""
        self.write(event, anchor)
        self.notify(event)

    def emit_admitted(self, attempt: Attempt, decision: Decision) -> None:
        """Emit the event of an admitted call."""
        self.emit(decisions.build_admitted(attempt, decision))

    def emit_completed(self, result: CallResult, has_learned: bool) -> None:
        """Emit a result as it was evaluated; anchor what has taught or confirmed a constraint."""
        self.emit(decisions.build_completed(result), has_learned)

    def emit_run_marks(
        self,
        session: SessionState,
        at: int | None,
        marks: Iterable[MarkChange],
        cleared: Iterable[MarkChange],
    ) -> None:
        """Emit what a sub-agent has marked, as an event of its run."""
        states = session.marks
        if states is None or session.parent is None:
            return
        known = {name for name, mark in states.marks.items() if mark.scope in RUN_SCOPES}
        set_marks = tuple([one for one in marks if one.mark in known])
        cleared_marks = tuple([one for one in cleared if one.mark in known])
        if set_marks or cleared_marks:
            run = session.mark_scopes["session"]
            self.emit(Marked(run, at, marks=set_marks, cleared=cleared_marks, child=session.id))


class CandidateEmitter(CallEventEmitter):
    """Emits events, and after each how a candidate policy would have decided otherwise."""

    __slots__ = ("_candidate",)

    def __init__(self, journal: Journal | None, listeners: Listeners, candidate: Candidate) -> None:
        super().__init__(journal, listeners)
        self._candidate = candidate

    def notify(self, event: Event) -> None:
        """Hand an event to the listeners, then to the candidate."""
        super().notify(event)
        self._compare(event)

    def emit_completed(self, result: CallResult, has_learned: bool) -> None:
        """Emit a result; the candidate evaluates what the host reported."""
        event = decisions.build_completed(result)
        self.write(event, has_learned)
        super().notify(event)
        self._compare(replace(result.report, at=result.attempt.completed_at))

    def _compare(self, event: Event) -> None:
        differed = self._candidate.follow(event)
        if differed is None:
            return
        try:
            self.write(differed)
            super().notify(differed)
        except (JournalError, StoreError) as error:  # the call's own line is written
            warn(f"what the candidate policy would decide is not in the journal: {error}")


class _CallFields(msgspec.Struct, omit_defaults=True):
    """What few calls have: the host's ids and name, a likeness; in order as in `Admitted`."""

    batch: str = ""
    host_call: str = ""
    host_tool: str = ""
    likeness: str = ""


class _ResultNumbers(msgspec.Struct, omit_defaults=True):
    """The numbers of a result, named and ordered as in `Completed`."""

    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None


_PLACEHOLDER_NUMBERS = {**dict.fromkeys(_ResultNumbers.__struct_fields__), "exit_code": EXTRA}
"""Instead of a result's numbers: only a placeholder."""


class FastCallEmitter(CallEventEmitter):
    """Writes ordinary calls to a journal without building an event, if there is no listener.

    An admitted call is ordinary if only its fingerprint, batch and charges differ from others of
    its plan; a result if it is a success with a text, numbers and charges. Nearly all are. A
    template of what their lines share is made at the first line for each of `max_plans` plans (see
    `journal.line_template`). Both methods fill it in themselves: a helper would be one frame more.
    """

    def __init__(self, journal: Journal, listeners: Listeners, max_plans: int) -> None:
        super().__init__(journal, listeners)
        self._file_journal = journal
        self._max_line = journal.max_field_bytes
        self._max_plans = max_plans
        self._changing_templates: dict[Plan, LineTemplate | None] = {}
        self._unchanging_templates: dict[Plan, LineTemplate | None] = {}
        self._result_templates: dict[str, LineTemplate | None] = {}

    def emit_admitted(self, attempt: Attempt, decision: Decision) -> None:
        """Write an admitted call."""
        if (
            attempt.at is None
            or (attempt.wall is not None and attempt.wall != attempt.at)
            or attempt.tags
            or attempt.hints
            or attempt.estimate
            or attempt.pins
            or attempt.targets
            or attempt.loose_fingerprint
            or attempt.probes
            or attempt.cleared
            or attempt.shared_clearings
            or decision.violations
            or decision.grants
            or decision.would
            or decision.waived
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
            template = (self._changing_templates if changing else self._unchanging_templates)[plan]
        except KeyError:
            template = self._add_template(attempt, decision)
        extra: str | None = ""
        likeness = "" if attempt.likeness == attempt.fingerprint else attempt.likeness
        if attempt.batch or attempt.host_call or attempt.host_tool or likeness:
            fields = _CallFields(attempt.batch, attempt.host_call, attempt.host_tool, likeness)
            extra = _encode_fields(fields)
        charged = _encode_fields({"charges": attempt.charges}) if attempt.charges else ""
        if template is None or extra is None or charged is None:
            super().emit_admitted(attempt, decision)
            return
        journal, session = self._file_journal, attempt.session.id
        writer = journal.current_file
        if writer is None or writer.session != session:
            writer = journal.switch_to(session)
        a, b, c, d, e, f, g, h = template
        fingerprint = attempt.fingerprint
        line = (
            f"{a}{writer.session_json}{b}{attempt.at}{c}{attempt.id}{d}{fingerprint}{e}{extra}{f}"
            f"{fingerprint}{g}{charged}{h}"
        )
        if len(line) > self._max_line:
            super().emit_admitted(attempt, decision)
        else:
            writer.append(line, True, False)

    def emit_completed(self, result: CallResult, has_learned: bool) -> None:
        """Write a result as it was evaluated."""
        event, outcome, charges = result.report, result.outcome, result.charges
        at = result.attempt.completed_at
        if (
            at is None
            or (event.wall is not None and event.wall != at)
            or not event.text
            or event.meta
            or event.provenance != "explicit"
            or outcome.state != "success"
            or outcome.signature
            or outcome.like_result
            or result.observations
            or result.marks
            or event.fired
            or not event.call.isalnum()
        ):
            super().emit_completed(result, has_learned)
            return
        try:
            template = self._result_templates[outcome.state]
        except KeyError:
            completed = decisions.build_completed(result)
            marked = replace(completed, result_fingerprint=FINGERPRINT, **_PLACEHOLDER_NUMBERS)
            template = self._result_templates[outcome.state] = self._build_template(marked)
        extra: str | None = ""
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
            extra = _encode_fields(numbers)
        charged = _encode_fields({"charges": charges}) if charges else ""
        if template is None or extra is None or charged is None:
            super().emit_completed(result, has_learned)
            return
        journal, session = self._file_journal, event.session
        writer = journal.current_file
        if writer is None or writer.session != session:
            writer = journal.switch_to(session)
        a, b, c, d, e, f, g, h = template
        fingerprint = outcome.result_fingerprint
        line = (
            f"{a}{writer.session_json}{b}{at}{c}{event.call}{d}{fingerprint}{e}{extra}{f}"
            f"{fingerprint}{g}{charged}{h}"
        )
        if len(line) > self._max_line:
            super().emit_completed(result, has_learned)
        else:
            writer.append(line, True, False)

    def _add_template(self, attempt: Attempt, decision: Decision) -> LineTemplate | None:
        """Add the template of a plan's calls that change state, or do not, as this one."""
        plan = attempt.bound_plan.plan
        is_changing = plan.is_state_changing(attempt)
        templates = self._changing_templates if is_changing else self._unchanging_templates
        if len(templates) >= self._max_plans:
            templates.clear()
        event = decisions.build_admitted(attempt, decision)
        marked = replace(
            event,
            batch=str(EXTRA),
            host_call="",
            host_tool="",
            likeness="",
            fingerprint=FINGERPRINT,
        )
        template = templates[plan] = None if plan.keyed_limits else self._build_template(marked)
        return template

    def _build_template(self, event: Admitted | Completed) -> LineTemplate | None:
        """Return the template of events like this one."""
        marked = replace(event, session=SESSION, at=AT, call=CALL, charges=(CHARGE,))
        return self._file_journal.line_template(marked)


def _encode_fields(values: _CallFields | _ResultNumbers | dict[str, Any]) -> str | None:
    """Return fields as JSON, to append to others; None for values that JSON cannot hold."""
    try:
        return f",{msgspec.json.encode(values)[1:-1].decode()}"
    except (OverflowError, TypeError, UnicodeError):
        return None
