"""Langfuse exports: traces with their `observations`, or observations alone.

A document, a list, a page of them, or one per line; one session per trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing import spans
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import from_iso
from policyguard.traces.parsing.message_content import as_arguments, as_text
from policyguard.traces.parsing.spans import TraceSpan
from policyguard.traces.session_builder import ImportedCall, ImportedResult

FORMAT = "langfuse"

_SNAKE_WORD = re.compile(r"_([a-z])")


def detect(sample: Sample) -> bool:
    """Return whether observations are present, in any of these wrappings."""
    values = (*as_list(sample.document), sample.document, *sample.records)
    observations = (item for value in values for item in as_objects(_list_observations(value)))
    return any(map(_is_typical, observations))


def read(source: Source) -> Iterator[Item]:
    """Yield one session per trace, after reading the whole file."""
    traces: dict[tuple[int, str], list[dict[str, Any]]] = {}
    odd = 0
    for index, entry in enumerate(source.values()):
        if isinstance(entry, Skipped):
            yield entry
            continue
        line, value = entry
        items = _list_observations(value)
        observations = [_to_camel_case(item) for item in as_objects(items)]
        if any(item is value for item in items) and not any(map(_is_typical, observations)):
            yield Skipped(source.file, line, "not an observation")
            continue
        odd += len(items) - len(observations)
        # A trace may continue in the next line or page, unless it has its own `observations`.
        group = index if "observations" in as_object(value) else -1
        first = next((id_ for item in observations if (id_ := as_id(item.get("traceId")))), "")
        for item in observations:
            traces.setdefault((group, as_id(item.get("traceId")) or first), []).append(item)
    if odd:
        yield Skipped(source.file, None, f"{odd} observations that are not objects")
    used_ids: set[str] = set()
    for index, ((_, trace), observations) in enumerate(traces.items()):
        name = f"{source.name}:{trace}#{index}" if trace in used_ids else f"{source.name}:{trace}"
        used_ids.add(trace)
        session = source.name if len(traces) == 1 else name
        yield from spans.build_session(source.file, session, list(map(_parse_span, observations)))
    if not any(item.get("type") == "TOOL" for items in traces.values() for item in items):
        reason = "no observation of type TOOL: older integrations write tools as SPAN"
        yield Skipped(source.file, None, reason)


def _list_observations(value: object) -> list[Any]:
    """Return the observations of a document, a page or a line, which may itself be one."""
    holder = as_object(value)
    for key in ("observations", "data"):
        if isinstance(holder.get(key), list):
            return as_list(holder[key])
    return [value]


def _is_typical(observation: dict[str, Any]) -> bool:
    """Return whether it has a type and a trace, and is not a span of another system."""
    keys = observation.keys()
    is_known = {"type", "traceId"} <= keys or {"type", "trace_id", "start_time"} <= keys
    return is_known and keys.isdisjoint(("spanId", "span_id", "spanID"))


def _to_camel_case(item: dict[str, Any]) -> dict[str, Any]:
    """Return an observation with the API's keys; exports with one per line use snake case."""
    if "trace_id" not in item:
        return item
    return {_SNAKE_WORD.sub(lambda word: word[1].upper(), key): item[key] for key in item}


def _parse_span(observation: dict[str, Any]) -> TraceSpan:
    kind = observation.get("type")
    start, end = from_iso(observation.get("startTime")), from_iso(observation.get("endTime"))
    call = result = None
    if kind == "TOOL":
        raw = observation.get("input")
        args = None if raw is None else as_arguments(raw)
        tool = spans.tool_in_name(as_string(observation.get("name")))
        call = ImportedCall(as_id(observation.get("id")), tool, args, start, has_host_id=False)
        result = _parse_result(observation, start, end) if end is not None else None
    is_model = kind == "GENERATION"
    usage = as_object(observation.get("usageDetails")) if is_model else {}
    return TraceSpan(
        id=as_id(observation.get("id")),
        parent=as_id(observation.get("parentObservationId")),
        start=start,
        end=end,
        call=call,
        result=result,
        is_work=is_model or kind == "AGENT",
        tokens=int(as_amount(usage.get("total")) or 0),
        cost=float(as_amount(observation.get("totalCost")) or 0) if is_model else 0.0,
    )


def _parse_result(observation: dict[str, Any], start: int | None, end: int) -> ImportedResult:
    failed = observation.get("level") == "ERROR"
    return ImportedResult(
        call=as_id(observation.get("id")),
        text=as_text(observation.get("output")),
        ok=False if failed else None,
        provenance="explicit" if failed else "unknown",
        at=end,
        error=as_string(observation.get("statusMessage")) or None if failed else None,
        duration=spans.seconds_between(start, end),
    )
