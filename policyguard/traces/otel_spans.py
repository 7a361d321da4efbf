"""Where spans stand, and how they are written: OTLP, Tempo, Jaeger, Python's exporter, flat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from policyguard.traces.shape import as_id, as_number, as_object, as_objects, as_string
from policyguard.traces.times import from_iso

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
_IDS = ("spanId", "spanID", "span_id")
_TRACES = ("traceId", "traceID", "trace_id")
_LATEST = 2**63
_NO_PARENT = "0000000000000000"

Status = Literal["ok", "error", "unset"]

_STATUS: dict[str, Status] = {
    "1": "ok",
    "OK": "ok",
    "STATUS_CODE_OK": "ok",
    "2": "error",
    "ERROR": "error",
    "STATUS_CODE_ERROR": "error",
}


class RawSpan(msgspec.Struct, frozen=True):
    """A span, its fields under one set of names. Times are nanoseconds since 1970."""

    trace: str
    id: str
    parent: str
    name: str
    start: int | None
    end: int | None
    attributes: dict[str, Any]
    status: Status
    message: str


def spans_in(value: object) -> Iterator[RawSpan]:
    """All spans in a document or a line, in its order, whatever wraps them."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)
        elif isinstance(part, dict):
            if _is_span(part):
                yield _span(part)
            else:
                waiting += [part[key] for key in reversed(_WRAPPERS) if key in part]


def _is_span(value: dict[str, Any]) -> bool:
    if not isinstance(value.get("attributes", value.get("tags", [])), dict | list):
        return False
    named = "name" in value or "operationName" in value
    return named and bool(_first(value, _IDS) or _first(as_object(value.get("context")), _IDS))


def _span(value: dict[str, Any]) -> RawSpan:
    context = as_object(value.get("context"))
    attributes = _attributes(value.get("attributes", value.get("tags")))
    start, end = _times(value)
    status, message = _status(value, attributes)
    return RawSpan(
        trace=(_first(value, _TRACES) or _first(context, _TRACES)).removeprefix("0x"),
        id=(_first(value, _IDS) or _first(context, _IDS)).removeprefix("0x"),
        parent=_parent(value).removeprefix("0x"),
        name=as_string(value.get("name")) or as_string(value.get("operationName")),
        start=start,
        end=end,
        attributes=attributes,
        status=status,
        message=message,
    )


def _first(value: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((found for key in keys if (found := as_id(value.get(key)))), "")


def _parent(value: dict[str, Any]) -> str:
    told = _first(value, ("parentSpanId", "parentSpanID", "parent_span_id", "parent_id"))
    if told:
        return "" if told == _NO_PARENT else told
    references = as_objects(value.get("references"))
    return _first(references[0], _IDS) if references else ""


def _attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {as_string(entry.get("key")): _plain(entry.get("value")) for entry in as_objects(value)}


_SCALARS = ("stringValue", "intValue", "boolValue", "doubleValue", "string_value", "int_value")


def _plain(value: object) -> object:
    """What an attribute holds. Nests no deeper than the JSON it is read from may."""
    if not isinstance(value, dict):
        return value
    for key in _SCALARS:
        if key in value:
            return value[key]
    if "kvlistValue" in value:
        return _attributes(as_object(value["kvlistValue"]).get("values"))
    if "arrayValue" in value:
        held = as_objects(as_object(value["arrayValue"]).get("values"))
        return [_plain(item) for item in held]
    return value


def _times(value: dict[str, Any]) -> tuple[int | None, int | None]:
    if "startTimeUnixNano" in value or "start_time_unix_nano" in value:
        start = _nanoseconds(value.get("startTimeUnixNano", value.get("start_time_unix_nano")))
        return start, _nanoseconds(value.get("endTimeUnixNano", value.get("end_time_unix_nano")))
    if "startTime" in value and "duration" in value:  # Jaeger counts microseconds
        start, took = _nanoseconds(value["startTime"]), _nanoseconds(value["duration"])
        if start is None or start * 1000 >= _LATEST:
            return None, None
        return start * 1000, None if took is None else start * 1000 + took * 1000
    start_told = value.get("start_time", value.get("startTime"))
    end_told = value.get("end_time", value.get("endTime"))
    return _moment(start_told), _moment(end_told)


def _moment(value: object) -> int | None:
    return from_iso(value) if isinstance(value, str) and "-" in value else _nanoseconds(value)


def _nanoseconds(value: object) -> int | None:
    """An amount, which JSON for 64-bit integers writes as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    number = as_number(value)
    return int(number) if number is not None and 0 <= number < _LATEST else None


def _status(value: dict[str, Any], attributes: dict[str, Any]) -> tuple[Status, str]:
    told = value.get("status")
    status = as_object(told)
    code = status.get("code", status.get("status_code", told))
    if code is None or isinstance(code, dict):
        code = value.get("status_code", attributes.get("otel.status_code"))
    message = status.get("message", status.get("description", value.get("status_message")))
    said = as_string(message) or as_string(attributes.get("otel.status_description"))
    known = _STATUS.get(as_id(code).upper(), "unset")
    if known == "unset" and attributes.get("error") is True:
        known = "error"
    return known, said
