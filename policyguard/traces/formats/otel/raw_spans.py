"""Spans in any wrapping and notation: OTLP, Tempo, Jaeger, an SDK's exporter, flat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from policyguard.traces.parsing.json_shape import as_id, as_number, as_object, as_objects, as_string
from policyguard.traces.parsing.measurements import from_iso

_WRAPPERS = (
    "resourceSpans",
    "resource_spans",
    "batches",
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "spans",
    "data",
    "trace",
)
_ID_KEYS = ("spanId", "spanID", "span_id")
_PARENT_KEYS = ("parentSpanId", "parentSpanID", "parent_span_id", "parent_id")
_EVENT_KEYS = ("events", "span_events", "logs")
_TRACE_KEYS = ("traceId", "traceID", "trace_id")
_KIND_KEY = "openinference.span.kind"
_KINDS = ("AGENT", "CHAIN", "LLM", "TOOL", "RETRIEVER", "RERANKER", "EMBEDDING", "GUARDRAIL")
"""The values of `span_kind` that Phoenix writes; others are OpenTelemetry's."""
_MAX_NANOSECONDS = 2**63
_NO_PARENT = "0000000000000000"
_END_KEYS = ("endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time", "duration")

Status = Literal["ok", "error", "unset"]

_STATUS_BY_CODE: dict[str, Status] = {
    "1": "ok",
    "OK": "ok",
    "STATUS_CODE_OK": "ok",
    "2": "error",
    "ERROR": "error",
    "STATUS_CODE_ERROR": "error",
}


class RawSpan(msgspec.Struct, frozen=True):
    """A span with uniform field names; times are ns since 1970.

    `events` are names and attributes in recorded order. `has_ended` is true if an end is recorded,
    even one that cannot be parsed.
    """

    trace_id: str
    id: str
    parent: str
    name: str
    start: int | None
    end: int | None
    has_ended: bool
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    status: Status
    message: str


def find_spans(value: object) -> Iterator[RawSpan]:
    """Yield all spans in a document or a line, in its order, in any wrapping."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += reversed(part)
        elif isinstance(part, dict):
            if _is_span(part):
                yield _parse_span(part)
            else:
                stack += [part[key] for key in reversed(_WRAPPERS) if key in part]


def _is_span(value: dict[str, Any]) -> bool:
    if not isinstance(value.get("attributes", value.get("tags", [])), dict | list):
        return False
    has_name = "name" in value or "operationName" in value
    return has_name and bool(_first_id(value, _ID_KEYS) or _first_id(_context(value), _ID_KEYS))


def _context(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object in which the Python and JavaScript SDKs put a span's ids."""
    return as_object(value.get("context", value.get("_spanContext")))


def _parse_span(value: dict[str, Any]) -> RawSpan:
    context = _context(value)
    attributes = _parse_attributes(value.get("attributes", value.get("tags")))
    if value.get("span_kind") in _KINDS:
        attributes = {_KIND_KEY: value["span_kind"], **_flatten(attributes), **attributes}
    start, end = _parse_times(value)
    status, message = _parse_status(value, attributes)
    return RawSpan(
        trace_id=(_first_id(value, _TRACE_KEYS) or _first_id(context, _TRACE_KEYS)).removeprefix(
            "0x"
        ),
        id=(_first_id(value, _ID_KEYS) or _first_id(context, _ID_KEYS)).removeprefix("0x"),
        parent=_parent_id(value).removeprefix("0x"),
        name=as_string(value.get("name")) or as_string(value.get("operationName")),
        start=start,
        end=end,
        has_ended=any(value.get(key) is not None for key in _END_KEYS),
        attributes=attributes,
        events=tuple(_parse_events(value)),
        status=status,
        message=message,
    )


def _first_id(value: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((id_ for key in keys if (id_ := as_id(value.get(key)))), "")


def _parent_id(value: dict[str, Any]) -> str:
    context = as_object(value.get("parentSpanContext"))
    parent = _first_id(value, _PARENT_KEYS) or _first_id(context, _ID_KEYS)
    if parent:
        return "" if parent == _NO_PARENT else parent
    references = as_objects(value.get("references"))
    return _first_id(references[0], _ID_KEYS) if references else ""


def _parse_attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {as_string(tag.get("key")): _parse_value(tag.get("value")) for tag in as_objects(value)}


def _flatten(attributes: dict[str, Any]) -> dict[str, Any]:
    """Flatten attributes that Phoenix may nest: `"input": {"value": …}` as `input.value`."""
    return {
        f"{outer}.{key}": value
        for outer, inner in attributes.items()
        if isinstance(inner, dict)
        for key, value in inner.items()
    }


def _parse_events(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    events = next((value[key] for key in _EVENT_KEYS if key in value), None)
    for event in as_objects(events):
        # Jaeger's logs put everything, even an event's name, into fields.
        attributes = _parse_attributes(event.get("attributes", event.get("fields")))
        name = event.get("name", event.get("event_name", attributes.get("event")))
        yield as_string(name), attributes


_SCALAR_KEYS = (
    "stringValue",
    "boolValue",
    "doubleValue",
    "string_value",
    "bool_value",
    "double_value",
)
_INTEGER_KEYS = ("intValue", "int_value")
_OBJECT_KEYS = ("kvlistValue", "kvlist_value")
_LIST_KEYS = ("arrayValue", "array_value")


def _parse_value(value: object) -> object:
    """Return an attribute's value; it nests no deeper than its JSON may."""
    if not isinstance(value, dict):
        return value
    for key, inner in value.items():
        if key in _SCALAR_KEYS:
            return inner
        if key in _INTEGER_KEYS:
            return _parse_integer(inner)
        if key in _OBJECT_KEYS:
            return _parse_attributes(as_object(inner).get("values"))
        if key in _LIST_KEYS:
            return [_parse_value(item) for item in as_objects(as_object(inner).get("values"))]
    return value


def _parse_integer(value: object) -> object:
    """Parse an integer, which JSON may write as text; return anything else as it is."""
    if isinstance(value, str) and len(value) < 21 and value.isascii():
        return int(value) if value.removeprefix("-").isdigit() else value
    return value


def _parse_times(value: dict[str, Any]) -> tuple[int | None, int | None]:
    if "startTimeUnixNano" in value or "start_time_unix_nano" in value:
        start = _parse_ns(value.get("startTimeUnixNano", value.get("start_time_unix_nano")))
        return start, _parse_ns(value.get("endTimeUnixNano", value.get("end_time_unix_nano")))
    raw_start = value.get("start_time", value.get("startTime"))
    if "startTime" in value and "duration" in value and not isinstance(raw_start, list):
        # Jaeger counts microseconds.
        start, duration = map(_parse_ns, (value["startTime"], value["duration"]))
        if start is None or start * 1000 >= _MAX_NANOSECONDS:
            return None, None
        return start * 1000, None if duration is None else (start + duration) * 1000
    return _parse_time(raw_start), _parse_time(value.get("end_time", value.get("endTime")))


def _parse_time(value: object) -> int | None:
    if isinstance(value, list):  # JavaScript's SDK writes seconds and nanoseconds
        parts = [_parse_ns(part) for part in value]
        seconds, nanoseconds = parts if len(parts) == 2 else (None, None)
        if seconds is None or nanoseconds is None:
            return None
        return _parse_ns(seconds * 1_000_000_000 + nanoseconds)
    return from_iso(value) if isinstance(value, str) and "-" in value else _parse_ns(value)


def _parse_ns(value: object) -> int | None:
    number = as_number(_parse_integer(value))
    return int(number) if number is not None and 0 <= number < _MAX_NANOSECONDS else None


def _parse_status(value: dict[str, Any], attributes: dict[str, Any]) -> tuple[Status, str]:
    raw_status = value.get("status")
    status = as_object(raw_status)
    code = status.get("code", status.get("status_code", raw_status))
    if code is None or isinstance(code, dict):
        code = value.get("status_code", attributes.get("otel.status_code"))
    message = status.get("message", status.get("description", value.get("status_message")))
    text = as_string(message) or as_string(attributes.get("otel.status_description"))
    parsed = _STATUS_BY_CODE.get(as_id(code).upper(), "unset")
    if parsed == "unset" and attributes.get("error") is True:
        parsed = "error"
    return parsed, text
