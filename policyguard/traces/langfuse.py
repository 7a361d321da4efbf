"""Langfuse's exports: a JSON document with a `trace` and its `observations`, one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.traces import spans
from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session import Call, Result
from policyguard.traces.shape import as_amount, as_id, as_list, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.spans import Span
from policyguard.traces.times import from_iso

FORMAT = "langfuse"

_NAMES = ("execute_tool ", "running tool: ")
"""How instrumentations begin the name of an observation whose rest is the tool's."""


def detect(sample: Sample) -> bool:
    """A document with observations, which have a type and a trace."""
    observations = as_objects(as_object(sample.document).get("observations"))
    return any("traceId" in seen and "type" in seen for seen in observations)


def read(source: Source, met: Met) -> Iterator[Item]:
    """The one trace of the export."""
    observations = as_list(as_object(source.sample.document).get("observations"))
    seen = as_objects(observations)
    if len(seen) < len(observations):
        reason = f"{len(observations) - len(seen)} observations that are no objects"
        yield Skipped(source.file, None, reason)
    yield from spans.events(source.file, source.name, [_span(one) for one in seen])
    if not any(one.get("type") == "TOOL" for one in seen):
        reason = "no observation of type TOOL: older integrations write tools as SPAN, as much else"
        yield Skipped(source.file, None, reason)


def _span(seen: dict[str, Any]) -> Span:
    kind = seen.get("type")
    start, end = from_iso(seen.get("startTime")), from_iso(seen.get("endTime"))
    call = result = None
    if kind == "TOOL":
        told = seen.get("input")
        args = None if told is None else as_arguments(told)
        call = Call(as_id(seen.get("id")), _tool(seen), args, start)
        result = _result(seen, start, end) if end is not None else None
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


def _tool(seen: dict[str, Any]) -> str:
    name = as_string(seen.get("name"))
    for beginning in _NAMES:
        name = name.removeprefix(beginning)
    return name


def _result(seen: dict[str, Any], start: int | None, end: int) -> Result:
    failed = seen.get("level") == "ERROR"
    return Result(
        call=as_id(seen.get("id")),
        text=as_text(seen.get("output")),
        ok=False if failed else None,
        known="explicit" if failed else "unknown",
        at=end,
        error=as_string(seen.get("statusMessage")) or None if failed else None,
        duration=None if start is None else max(end - start, 0) / 1_000_000_000,
    )
