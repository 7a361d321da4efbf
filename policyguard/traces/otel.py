"""OpenTelemetry traces of agents: the GenAI conventions, OpenInference, Traceloop, Google's ADK.

A document of spans, or a line for each span or each export; one session a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.traces import otel_content, spans
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.otel_content import found
from policyguard.traces.otel_spans import RawSpan, spans_in
from policyguard.traces.session import Call, Result
from policyguard.traces.shape import as_amount, as_id, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.spans import Span

FORMAT = "otel"

_OF_AN_AGENT = (
    "gen_ai.",
    "openinference.",
    "traceloop.",
    "gcp.vertex.agent.",
    "llm.",
    "ai.toolCall.",
)
"""How the keys of attributes begin that only an agent's spans have."""

_ALSO_OF_OTHERS = ("gen_ai.conversation.id", "gen_ai.task.id")
"""Attributes that are handed on to whatever runs in a conversation."""

_TOOL = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_CALL = ("gen_ai.tool.call.id", "tool.id", "tool_call.id", "ai.toolCall.id")
_NAMES = ("execute_tool ", "running tool: ")
"""How the names of spans begin whose rest is the tool's."""

_MERGED = "(merged tools)"
"""Google's ADK writes one more span over calls that ran together."""

_TOKENS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
    ("llm.token_count.prompt", "llm.token_count.completion"),
    ("llm.usage.total_tokens",),
)


def detect(sample: Sample) -> bool:
    """Spans, in any of their wrappings."""
    values = (sample.document, *sample.records)
    return any(next(spans_in(value), None) is not None for value in values)


def read(source: Source, met: Met) -> Iterator[Item]:
    """The traces in which an agent left spans, each when the file has been read."""
    traces: dict[str, list[Span]] = {}
    agents: set[str] = set()
    for entry in source.values():
        if isinstance(entry, Skipped):
            yield entry
            continue
        line, value = entry
        empty = True
        for raw in spans_in(value):
            empty = False
            traces.setdefault(raw.trace, []).append(_span(raw))
            if _is_of_an_agent(raw.attributes):
                agents.add(raw.trace)
        if empty and value is not source.sample.document:
            yield Skipped(source.file, line, "no span")
    for trace, told in traces.items():
        if trace in agents:
            yield from spans.events(source.file, f"{source.name}:{trace}", told)
    if agents and not any(span.call for trace in agents for span in traces[trace]):
        reason = f"no span that is known to be a tool's, in {len(agents)} traces of agents"
        yield Skipped(source.file, None, reason)
    others = len(traces) - len(agents)
    if others:
        yield Skipped(source.file, None, f"{others} traces without a span of an agent")


def _is_of_an_agent(attributes: dict[str, Any]) -> bool:
    return any(key.startswith(_OF_AN_AGENT) and key not in _ALSO_OF_OTHERS for key in attributes)


def _span(raw: RawSpan) -> Span:
    attributes = raw.attributes
    tool = _tool(raw)
    call = result = None
    if tool:
        args = otel_content.arguments(raw)
        call = Call(as_id(found(attributes, _CALL)) or raw.id, tool, args, raw.start)
        result = _result(raw, call) if raw.ended else None
    return Span(
        id=raw.id,
        parent=raw.parent,
        start=raw.start,
        end=raw.end,
        agent=as_string(attributes.get("gen_ai.agent.name")),
        call=call,
        result=result,
        is_mcp="mcp.method.name" in attributes,
        tokens=_tokens(attributes),
        cost=float(_amount(attributes.get("llm.cost.total"))),
    )


def _tool(raw: RawSpan) -> str:
    """The tool, where the span is one of a tool that ran."""
    attributes = raw.attributes
    operation = attributes.get("gen_ai.operation.name")
    is_tool = (
        operation == "execute_tool"
        or as_string(attributes.get("openinference.span.kind")).upper() == "TOOL"
        or as_string(attributes.get("traceloop.span.kind")).lower() == "tool"
        or "ai.toolCall.name" in attributes
        or (operation is None and ("gen_ai.tool.name" in attributes or raw.name.startswith(_NAMES)))
    )
    if not is_tool:
        return ""
    name = raw.name
    for beginning in _NAMES:
        name = name.removeprefix(beginning)
    tool = as_string(found(attributes, _TOOL)) or name
    return "" if tool == _MERGED else tool


def _result(raw: RawSpan, call: Call) -> Result:
    text, answered = otel_content.result(raw)
    ok = otel_content.success(raw, answered)
    took = None
    if raw.start is not None and raw.end is not None:
        took = max(raw.end - raw.start, 0) / 1_000_000_000
    return Result(
        call.id,
        text,
        ok,
        "unknown" if ok is None else "explicit",
        raw.end,
        error=(otel_content.error(raw) or None) if ok is False else None,
        duration=took,
    )


def _tokens(attributes: dict[str, Any]) -> int:
    for keys in _TOKENS:
        if any(key in attributes for key in keys):
            return sum(int(_amount(attributes.get(key))) for key in keys)
    return 0


def _amount(value: object) -> int | float:
    """An amount; integers stand as text in OTLP's JSON."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    return as_amount(value) or 0
