"""Events as OpenTelemetry spans, in OTLP's JSON: one request of up to `_SPANS_A_LINE` spans a line.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/: a collector reads it as a file,
or at `/v1/traces`, a line at a time. A session is a span `invoke_agent`, with a span `execute_tool`
for each call; a decision is an event on the latter, unless the recording has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Refused,
    Released,
    SessionEnded,
    SessionStarted,
    Spent,
)
from policyguard.traces.writers import span_attributes as names
from policyguard.traces.writers.span_attributes import AttributeValue

_SPANS_A_LINE = 500
_INTERNAL_KIND = 1
_ERROR_STATUS = 2


class _Session(msgspec.Struct):
    """A session whose end is not known yet."""

    trace_id: str
    span_id: str
    parent_span_id: str
    agent: str
    start: int
    latest: int
    tokens: int = 0
    cost: float = 0.0
    model_calls: int = 0
    refusals: int = 0
    calls: dict[str, Admitted] = {}


def write_otlp(events: Iterable[Event], *, content: bool = False) -> Iterator[bytes]:
    """Yield lines of OTLP's JSON. Arguments and results are left out, unless `content` is set.

    The same events give the same ids. A call without a result ends with its session.
    """
    writer = _Writer(content)
    spans: list[dict[str, Any]] = []
    for event in events:
        spans += writer.add(event)
        if len(spans) >= _SPANS_A_LINE:
            yield _encode(spans)
            spans = []
    spans += writer.finish()
    if spans:
        yield _encode(spans)


class _Writer:
    def __init__(self, content: bool) -> None:
        self._content = content
        self._sessions: dict[str, _Session] = {}

    def add(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the spans that an event ends."""
        if isinstance(event, SessionStarted):
            self._sessions[event.session] = self._start(event)
            return
        session = self._sessions.get(event.session)
        if session is None:
            session = self._sessions[event.session] = self._start(
                SessionStarted(session=event.session, at=event.at)
            )
        session.latest = max(session.latest, event.at or 0)
        match event:
            case Admitted():
                session.calls[event.call] = event
            case Refused():
                yield self._refused_span(session, event)
            case Completed():
                admitted = session.calls.pop(event.call, None)
                if admitted is not None:
                    yield self._call_span(session, admitted, event)
            case Released():
                session.calls.pop(event.call, None)
            case Spent():
                session.tokens += event.tokens
                session.cost += event.cost
                session.model_calls += event.model_calls
            case SessionEnded():
                yield from self._end(event.session)

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield the spans of what has not ended."""
        for session in [*self._sessions]:
            yield from self._end(session)

    def _start(self, event: SessionStarted) -> _Session:
        parent = self._sessions.get(event.parent)
        at = event.at or 0
        return _Session(
            trace_id=_hash(event.session, 32) if parent is None else parent.trace_id,
            span_id=_hash(event.session, 16),
            parent_span_id="" if parent is None else parent.span_id,
            agent=event.agent,
            start=at,
            latest=at,
        )

    def _end(self, id_: str) -> Iterator[dict[str, Any]]:
        session = self._sessions.pop(id_)
        for admitted in session.calls.values():
            yield self._call_span(session, admitted, None)
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.CONVERSATION: id_,
        }
        if session.agent:
            attributes[names.AGENT_NAME] = session.agent
        if session.tokens:
            attributes["policyguard.tokens"] = session.tokens
        if session.cost:
            attributes["policyguard.cost"] = session.cost
        if session.model_calls:
            attributes["policyguard.model_calls"] = session.model_calls
        yield _span(
            session,
            session.span_id,
            f"{names.INVOKE_AGENT} {session.agent}".rstrip(),
            (session.start, session.latest),
            attributes,
            parent=session.parent_span_id,
        )

    def _refused_span(self, session: _Session, event: Refused) -> dict[str, Any]:
        at = event.at or session.latest
        attributes = self._call_attributes(event) | {names.ERROR_TYPE: names.REFUSED}
        session.refusals += 1
        span_id = _hash(f"{event.session}\0refused\0{session.refusals}", 16)
        span = _span(session, span_id, names.span_name(event), (at, at), attributes)
        return span | {
            "events": [_decision_event(event, at)],
            "status": {"code": _ERROR_STATUS, "message": event.effect},
        }

    def _call_span(
        self, session: _Session, admitted: Admitted, completed: Completed | None
    ) -> dict[str, Any]:
        start = admitted.at or session.start
        attributes = self._call_attributes(admitted)
        end, failure = session.latest, ""
        if completed is not None:
            end, failure = completed.at or start, names.error_type(completed)
            if failure:
                attributes[names.ERROR_TYPE] = failure
            if self._content:
                attributes[names.RESULT] = completed.error or completed.text
        span_id = _hash(f"{admitted.session}\0{admitted.call}", 16)
        span = _span(
            session, span_id, names.span_name(admitted), (start, max(start, end)), attributes
        )
        if admitted.fingerprint:  # a policy decided on it
            span["events"] = [_decision_event(admitted, start)]
        if failure:
            span["status"] = {"code": _ERROR_STATUS}
        return span

    def _call_attributes(self, event: Admitted | Refused) -> dict[str, AttributeValue]:
        attributes = names.call_attributes(event)
        if self._content and event.args is not None:
            attributes[names.ARGUMENTS] = msgspec.json.encode(event.args).decode()
        return attributes


def _decision_event(event: Admitted | Refused, at: int) -> dict[str, Any]:
    return {
        "timeUnixNano": str(at),
        "name": names.DECISION,
        "attributes": _encode_attributes(names.decision_attributes(event)),
    }


def _span(
    session: _Session,
    span_id: str,
    name: str,
    times: tuple[int, int],
    attributes: Mapping[str, AttributeValue],
    *,
    parent: str | None = None,
) -> dict[str, Any]:
    start, end = times
    return {
        "traceId": session.trace_id,
        "spanId": span_id,
        "parentSpanId": session.span_id if parent is None else parent,
        "name": name,
        "kind": _INTERNAL_KIND,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": _encode_attributes(attributes),
    }


def _encode_attributes(attributes: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_encode_value(one) for one in value]}}
    return {"stringValue": value}


def _encode(spans: list[dict[str, Any]]) -> bytes:
    resource = {"attributes": _encode_attributes({"service.name": "policyguard"})}
    scope_spans = [{"scope": {"name": "policyguard"}, "spans": spans}]
    return msgspec.json.encode(
        {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}
    )


def _hash(text: str, digits: int) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
