"""Where spans stand, and how they are written: OTLP, Tempo, Jaeger, an SDK's exporter, flat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from policyguard.traces.parsing.json_shape import as_id, as_number, as_object, as_objects, as_string
from policyguard.traces.parsing.timestamps import from_iso

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
"""The kinds that Phoenix writes beside the attributes; other `span_kind`s are OpenTelemetry's."""
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
    """A span, its fields under one set of names. Times are nanoseconds since 1970.

    `events` are names and attributes, in the order in which they were added.
    `ended`: an end is told, though it may be one that cannot be read.
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
    """All spans in a document or a line, in its order, whatever wraps them."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)
        elif isinstance(part, dict):
            if _is_span(part):
                yield _parse_span(part)
            else:
                waiting += [part[key] for key in reversed(_WRAPPERS) if key in part]


def _is_span(value: dict[str, Any]) -> bool:
    if not isinstance(value.get("attributes", value.get("tags", [])), dict | list):
        return False
    named = "name" in value or "operationName" in value
    return named and bool(_first_id(value, _ID_KEYS) or _first_id(_context(value), _ID_KEYS))


def _context(value: dict[str, Any]) -> dict[str, Any]:
    """What Python's SDK, and JavaScript's, put the ids of a span into."""
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
    return next((found for key in keys if (found := as_id(value.get(key)))), "")


def _parent_id(value: dict[str, Any]) -> str:
    told = _first_id(value, _PARENT_KEYS) or _first_id(
        as_object(value.get("parentSpanContext")), _ID_KEYS
    )
    if told:
        return "" if told == _NO_PARENT else told
    references = as_objects(value.get("references"))
    return _first_id(references[0], _ID_KEYS) if references else ""


def _parse_attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {
        as_string(entry.get("key")): _attribute_value(entry.get("value"))
        for entry in as_objects(value)
    }


def _flatten(attributes: dict[str, Any]) -> dict[str, Any]:
    """What Phoenix may write as `"input": {"value": …}`, under the one name that it has."""
    return {
        f"{outer}.{key}": held
        for outer, inner in attributes.items()
        if isinstance(inner, dict)
        for key, held in inner.items()
    }


def _parse_events(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    told = next((value[key] for key in _EVENT_KEYS if key in value), None)
    for event in as_objects(told):
        # In Jaeger's logs, all of an event is fields.
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


def _attribute_value(value: object) -> object:
    """What an attribute holds. Nests no deeper than the JSON it is read from may."""
    if not isinstance(value, dict):
        return value
    for key, held in value.items():
        if key in _SCALAR_KEYS:
            return held
        if key in _INTEGER_KEYS:
            return _parse_integer(held)
        if key in _OBJECT_KEYS:
            return _parse_attributes(as_object(held).get("values"))
        if key in _LIST_KEYS:
            return [_attribute_value(item) for item in as_objects(as_object(held).get("values"))]
    return value


def _parse_integer(value: object) -> object:
    """An integer, which JSON for those of 64 bits writes as text; anything else as it is."""
    if isinstance(value, str) and len(value) < 21 and value.isascii():
        return int(value) if value.removeprefix("-").isdigit() else value
    return value


def _parse_times(value: dict[str, Any]) -> tuple[int | None, int | None]:
    if "startTimeUnixNano" in value or "start_time_unix_nano" in value:
        start = _parse_nanoseconds(
            value.get("startTimeUnixNano", value.get("start_time_unix_nano"))
        )
        return start, _parse_nanoseconds(
            value.get("endTimeUnixNano", value.get("end_time_unix_nano"))
        )
    start_told = value.get("start_time", value.get("startTime"))
    if "startTime" in value and "duration" in value and not isinstance(start_told, list):
        # Jaeger counts microseconds.
        start, took = _parse_nanoseconds(value["startTime"]), _parse_nanoseconds(value["duration"])
        if start is None or start * 1000 >= _MAX_NANOSECONDS:
            return None, None
        return start * 1000, None if took is None else start * 1000 + took * 1000
    end_told = value.get("end_time", value.get("endTime"))
    return _parse_time(start_told), _parse_time(end_told)


def _parse_time(value: object) -> int | None:
    if isinstance(value, list):  # JavaScript's SDK counts seconds, and nanoseconds beyond them
        parts = [_parse_nanoseconds(part) for part in value]
        seconds, beyond = parts if len(parts) == 2 else (None, None)
        if seconds is None or beyond is None:
            return None
        return _parse_nanoseconds(seconds * 1_000_000_000 + beyond)
    return from_iso(value) if isinstance(value, str) and "-" in value else _parse_nanoseconds(value)


def _parse_nanoseconds(value: object) -> int | None:
    number = as_number(_parse_integer(value))
    return int(number) if number is not None and 0 <= number < _MAX_NANOSECONDS else None


def _parse_status(value: dict[str, Any], attributes: dict[str, Any]) -> tuple[Status, str]:
    told = value.get("status")
    status = as_object(told)
    code = status.get("code", status.get("status_code", told))
    if code is None or isinstance(code, dict):
        code = value.get("status_code", attributes.get("otel.status_code"))
    message = status.get("message", status.get("description", value.get("status_message")))
    said = as_string(message) or as_string(attributes.get("otel.status_description"))
    known = _STATUS_BY_CODE.get(as_id(code).upper(), "unset")
    if known == "unset" and attributes.get("error") is True:
        known = "error"
    return known, said
