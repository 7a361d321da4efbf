"""A guard's decisions and results as OpenTelemetry spans, events and metrics.

    from policyguard.adapters.otel import Telemetry

    telemetry = Telemetry(guard)

Needs the extra `otel`. Nothing is reported, and nothing costs time, before a `Telemetry` is made.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from policyguard.adapters.extras import missing_extra
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Refused,
    Released,
    SessionEnded,
    Spent,
)
from policyguard.traces.writers import span_attributes as names

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ModuleNotFoundError as error:
    raise missing_extra(error, "OpenTelemetry", "otel") from None

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard

_NAME = "policyguard"
_MAX_OPEN_SPANS = 10_000
"""Spans of calls whose result never comes are ended, the oldest first."""


class Telemetry:
    """Reports to OpenTelemetry what a guard decides, until `close`.

    A decision is an event `policyguard.decision` on the host's own span `execute_tool …` where that
    is the current one. Where there is none, the call gets a span of ours, from its check to its
    result, under the current span. Metrics count decisions, results, tokens and cost; their labels
    have few values: effects, sections of the policy, tool classes. `tracer_provider` and
    `meter_provider` are by default the global ones, which do nothing until the host sets them up.
    Spans end under the guard's lock: export them by a batch processor.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._decisions = meter.create_counter(
            "policyguard.decisions", "{decision}", "Calls decided on."
        )
        self._results = meter.create_counter("policyguard.results", "{result}", "Results of calls.")
        self._tokens = meter.create_counter("policyguard.tokens", "{token}", "Tokens spent.")
        self._cost = meter.create_counter(
            "policyguard.cost", "{currency}", "Cost, in the currency of budgets."
        )
        self._model_calls = meter.create_counter(
            "policyguard.model_calls", "{call}", "Calls of the model."
        )
        self._spans: OrderedDict[tuple[str, str], Span] = OrderedDict()
        self._remove = guard.on(
            self._note, Admitted, Refused, Completed, Released, Spent, SessionEnded
        )

    def close(self) -> None:
        """Report nothing more, and end the spans of calls without a result."""
        self._remove()
        while self._spans:
            self._spans.popitem()[1].end()

    def _note(self, event: Event) -> None:
        match event:
            case Admitted() | Refused():
                self._note_decision(event)
            case Completed():
                self._note_result(event)
            case Released():
                self._end_span(event.session, event.call)
            case Spent():
                self._count_spending(event.tokens, event.cost)
                if event.model_calls:
                    self._model_calls.add(event.model_calls)
            case SessionEnded():
                for session, call in [key for key in self._spans if key[0] == event.session]:
                    self._end_span(session, call)

    def _note_decision(self, event: Admitted | Refused) -> None:
        labels = {names.EFFECT: event.effect}
        if event.class_:
            labels[names.TOOL_CLASS] = event.class_
        if kind := names.entry_kind(event):
            labels[names.ENTRY_KIND] = kind
        self._decisions.add(1, labels)
        span, is_own = trace.get_current_span(), False
        if not _is_of_a_tool(span):
            is_own = True
            span = self._tracer.start_span(
                names.span_name(event),
                kind=SpanKind.INTERNAL,
                attributes=names.call_attributes(event),
            )
        span.add_event(names.DECISION, names.decision_attributes(event))
        if isinstance(event, Refused):
            span.set_attribute(names.ERROR_TYPE, names.REFUSED)
            span.set_status(Status(StatusCode.ERROR, event.effect))
            if is_own:
                span.end()
        elif is_own and span.is_recording():
            self._spans[event.session, event.call] = span
            if len(self._spans) > _MAX_OPEN_SPANS:
                self._spans.popitem(last=False)[1].end()

    def _note_result(self, event: Completed) -> None:
        failure = names.error_type(event)
        self._results.add(1, {names.ERROR_TYPE: failure} if failure else {})
        self._count_spending(event.tokens or 0, event.cost or 0.0)
        self._end_span(event.session, event.call, failure)

    def _count_spending(self, tokens: int, cost: float) -> None:
        if tokens:
            self._tokens.add(tokens)
        if cost:
            self._cost.add(cost)

    def _end_span(self, session: str, call: str, failure: str = "") -> None:
        span = self._spans.pop((session, call), None)
        if span is None:
            return
        if failure:
            span.set_attribute(names.ERROR_TYPE, failure)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def _is_of_a_tool(span: Span) -> bool:
    """Whether a span is a host's own of a tool call."""
    if not span.is_recording():
        return False
    name = getattr(span, "name", "")
    return isinstance(name, str) and name.startswith(names.EXECUTE_TOOL)
