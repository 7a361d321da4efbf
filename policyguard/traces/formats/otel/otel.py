"""OpenTelemetry traces of agents: the GenAI conventions, OpenInference, Traceloop, Google's ADK.

A document of spans, or one span or export per line; one session per trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.otel import call_content
from policyguard.traces.formats.otel.call_content import first_value
from policyguard.traces.formats.otel.raw_spans import RawSpan, find_spans
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing import spans
from policyguard.traces.parsing.json_shape import as_amount, as_id, as_string
from policyguard.traces.parsing.spans import TraceSpan
from policyguard.traces.session_builder import ImportedCall, ImportedResult

FORMAT = "otel"

_AGENT_PREFIXES = (
    "gen_ai.",
    "openinference.",
    "traceloop.",
    "gcp.vertex.agent.",
    "llm.",
    "ai.toolCall.",
)
"""Prefixes of attributes that only an agent's spans have."""

_SHARED_KEYS = ("gen_ai.conversation.id", "gen_ai.task.id")
"""Attributes that all spans of a conversation may have."""

_TOOL_KEYS = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_CALL_ID_KEYS = ("gen_ai.tool.call.id", "tool.id", "tool_call.id", "ai.toolCall.id")
_MERGED_TOOLS = "(merged tools)"
"""The tool of an extra span that Google's ADK writes over parallel calls."""

_WORK_KINDS = ("AGENT", "LLM")
_WORK_OPERATIONS = ("chat", "generate_content", "text_completion", "invoke_agent")
"""The kinds and operations of spans in which an agent or a model is at work."""

_TOKEN_KEYS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
    ("llm.token_count.prompt", "llm.token_count.completion"),
    ("llm.usage.total_tokens",),
)


def detect(sample: Sample) -> bool:
    """Return whether there are spans in any wrapping."""
    values = (sample.document, *sample.records)
    return any(next(find_spans(value), None) is not None for value in values)


def read(source: Source) -> Iterator[Item]:
    """Yield one session per trace with agent spans, after reading the whole file."""
    traces: dict[str, list[TraceSpan]] = {}
    agents: set[str] = set()
    for entry in source.values():
        if isinstance(entry, Skipped):
            yield entry
            continue
        line, value = entry
        is_empty = True
        for raw in find_spans(value):
            is_empty = False
            traces.setdefault(raw.trace_id, []).append(_parse_span(raw))
            if _is_agent_span(raw.attributes):
                agents.add(raw.trace_id)
        if is_empty and value is not source.sample.document:
            yield Skipped(source.file, line, "not a span")
    for trace, trace_spans in traces.items():
        if trace in agents:
            yield from spans.build_session(source.file, f"{source.name}:{trace}", trace_spans)
    if agents and not any(span.call for trace in agents for span in traces[trace]):
        reason = f"no known tool span in {len(agents)} traces of agents"
        yield Skipped(source.file, None, reason)
    others = len(traces) - len(agents)
    if others:
        yield Skipped(source.file, None, f"{others} traces without an agent span")


def _is_agent_span(attributes: dict[str, Any]) -> bool:
    return any(key.startswith(_AGENT_PREFIXES) and key not in _SHARED_KEYS for key in attributes)


def _parse_span(raw: RawSpan) -> TraceSpan:
    attributes = raw.attributes
    tool = _tool_name(raw)
    call = result = None
    if tool:
        args = call_content.parse_arguments(raw)
        name = as_id(first_value(attributes, _CALL_ID_KEYS))
        call = ImportedCall(name or raw.id, tool, args, raw.start, has_host_id=bool(name))
        result = _parse_result(raw, call) if raw.has_ended else None
    return TraceSpan(
        id=raw.id,
        parent=raw.parent,
        start=raw.start,
        end=raw.end,
        agent=as_string(attributes.get("gen_ai.agent.name")),
        call=call,
        result=result,
        is_mcp="mcp.method.name" in attributes,
        is_work=_is_work(attributes),
        tokens=_count_tokens(attributes),
        cost=float(_amount(attributes.get("llm.cost.total"))),
    )


def _is_work(attributes: dict[str, Any]) -> bool:
    """Return whether the span is of a running agent or a model."""
    kind = as_string(attributes.get("openinference.span.kind")).upper()
    operation = as_string(attributes.get("gen_ai.operation.name"))
    return operation != "create_agent" and (
        kind in _WORK_KINDS
        or operation in _WORK_OPERATIONS
        or as_string(attributes.get("traceloop.span.kind")).lower() == "agent"
        or "gen_ai.agent.name" in attributes
    )


def _tool_name(raw: RawSpan) -> str:
    """Return the tool's name; empty if it is not a tool's span."""
    attributes = raw.attributes
    operation = attributes.get("gen_ai.operation.name")
    is_tool = (
        operation == "execute_tool"
        or as_string(attributes.get("openinference.span.kind")).upper() == "TOOL"
        or as_string(attributes.get("traceloop.span.kind")).lower() == "tool"
        or "ai.toolCall.name" in attributes
        or (
            operation is None
            and ("gen_ai.tool.name" in attributes or raw.name.startswith(spans.NAME_PREFIXES))
        )
    )
    if not is_tool:
        return ""
    tool = as_string(first_value(attributes, _TOOL_KEYS)) or spans.tool_in_name(raw.name)
    return "" if tool == _MERGED_TOOLS else tool


def _parse_result(raw: RawSpan, call: ImportedCall) -> ImportedResult:
    text, result_flag = call_content.parse_result(raw)
    ok = call_content.parse_success(raw, result_flag)
    return ImportedResult(
        call.id,
        text,
        ok,
        "unknown" if ok is None else "explicit",
        raw.end,
        error=(call_content.parse_error(raw) or None) if ok is False else None,
        duration=spans.seconds_between(raw.start, raw.end),
    )


def _count_tokens(attributes: dict[str, Any]) -> int:
    for keys in _TOKEN_KEYS:
        if any(key in attributes for key in keys):
            return sum(int(_amount(attributes.get(key))) for key in keys)
    return 0


def _amount(value: object) -> int | float:
    """Return an amount; OTLP's JSON writes integers as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    return as_amount(value) or 0
