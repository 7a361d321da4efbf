"""Langfuse's exports: traces with their `observations`, or observations by themselves.

A document, a list or a page of them, or one a line; one session a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing import spans
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.parsing.spans import Span
from policyguard.traces.parsing.timestamps import from_iso
from policyguard.traces.session_builder import ImportedCall, ImportedResult

FORMAT = "langfuse"

_SNAKE_WORD = re.compile(r"_([a-z])")

_NAME_PREFIXES = ("execute_tool ", "running tool: ")
"""How instrumentations begin the name of an observation whose rest is the tool's."""


def detect(sample: Sample) -> bool:
    """Observations, which have a type and a trace, in any of these wrappings."""
    values = (*as_list(sample.document), sample.document, *sample.records)
    return any(
        _is_typical(seen) for value in values for seen in as_objects(_list_observations(value))
    )


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """The traces of the file, each when it has been read."""
    traces: dict[tuple[int, str], list[dict[str, Any]]] = {}
    odd = 0
    for index, entry in enumerate(source.values()):
        if isinstance(entry, Skipped):
            yield entry
            continue
        line, value = entry
        observations = _list_observations(value)
        seen = [_to_camel_case(one) for one in as_objects(observations)]
        if any(one is value for one in observations) and not any(map(_is_typical, seen)):
            yield Skipped(source.file, line, "no observation")
            continue
        odd += len(observations) - len(seen)
        # A trace may go on in the next line or page, unless it is given with all that it has.
        whole = index if "observations" in as_object(value) else -1
        first = next((id_ for one in seen if (id_ := as_id(one.get("traceId")))), "")
        for one in seen:
            traces.setdefault((whole, as_id(one.get("traceId")) or first), []).append(one)
    if odd:
        yield Skipped(source.file, None, f"{odd} observations that are no objects")
    taken: set[str] = set()
    for place, ((_, trace), seen) in enumerate(traces.items()):
        name = f"{source.name}:{trace}#{place}" if trace in taken else f"{source.name}:{trace}"
        taken.add(trace)
        session = source.name if len(traces) == 1 else name
        yield from spans.build_session(source.file, session, [_parse_span(one) for one in seen])
    if not any(one.get("type") == "TOOL" for seen in traces.values() for one in seen):
        reason = "no observation of type TOOL: older integrations write tools as SPAN, as much else"
        yield Skipped(source.file, None, reason)


def _list_observations(value: object) -> list[Any]:
    """What a document, a page or a line holds; a line may be one observation."""
    held = as_object(value)
    for key in ("observations", "data"):
        if isinstance(held.get(key), list):
            return as_list(held[key])
    return [value]


def _is_typical(seen: dict[str, Any]) -> bool:
    """Whether it has a type and a trace, and is no span of another system."""
    keys = seen.keys()
    ours = {"type", "traceId"} <= keys or {"type", "trace_id", "start_time"} <= keys
    return ours and keys.isdisjoint(("spanId", "span_id", "spanID"))


def _to_camel_case(seen: dict[str, Any]) -> dict[str, Any]:
    """An observation, its keys as the API has them; its exports by the line have `trace_id`."""
    if "trace_id" not in seen:
        return seen
    return {_SNAKE_WORD.sub(lambda word: word[1].upper(), key): held for key, held in seen.items()}


def _parse_span(seen: dict[str, Any]) -> Span:
    kind = seen.get("type")
    start, end = from_iso(seen.get("startTime")), from_iso(seen.get("endTime"))
    call = result = None
    if kind == "TOOL":
        told = seen.get("input")
        args = None if told is None else as_arguments(told)
        call = ImportedCall(as_id(seen.get("id")), _tool_name(seen), args, start)
        result = _parse_result(seen, start, end) if end is not None else None
    is_model = kind == "GENERATION"
    usage = as_object(seen.get("usageDetails")) if is_model else {}
    return Span(
        id=as_id(seen.get("id")),
        parent=as_id(seen.get("parentObservationId")),
        start=start,
        end=end,
        call=call,
        result=result,
        tokens=int(as_amount(usage.get("total")) or 0),
        cost=float(as_amount(seen.get("totalCost")) or 0) if is_model else 0.0,
    )


def _tool_name(seen: dict[str, Any]) -> str:
    name = as_string(seen.get("name"))
    for beginning in _NAME_PREFIXES:
        name = name.removeprefix(beginning)
    return name


def _parse_result(seen: dict[str, Any], start: int | None, end: int) -> ImportedResult:
    failed = seen.get("level") == "ERROR"
    return ImportedResult(
        call=as_id(seen.get("id")),
        text=as_text(seen.get("output")),
        ok=False if failed else None,
        provenance="explicit" if failed else "unknown",
        at=end,
        error=as_string(seen.get("statusMessage")) or None if failed else None,
        duration=None if start is None else max(end - start, 0) / 1_000_000_000,
    )
