"""What the span of a tool records of its call: arguments, result, success and error.

Each instrumentation has its own attributes for them, or writes them into events of the span.
"""

from __future__ import annotations

from typing import Any

from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.json_text import JsonError, decode
from policyguard.traces.otel_spans import RawSpan
from policyguard.traces.shape import as_object, as_objects, as_string

_ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "gcp.vertex.agent.tool_call_args",
    "tool_arguments",
    "ai.toolCall.args",
    "ai.toolCall.input",
    "gen_ai.tool.input",
    "input.value",
    "traceloop.entity.input",
    "gen_ai.prompt",
)
_RESULT = (
    "gen_ai.tool.call.result",
    "gcp.vertex.agent.tool_response",
    "tool_response",
    "ai.toolCall.result",
    "ai.toolCall.output",
    "gen_ai.tool.output",
    "output.value",
    "traceloop.entity.output",
    "gen_ai.completion",
    "gen_ai.tool.message",
)
_DETAILS = "gen_ai.client.inference.operation.details"
_HIDDEN = "__REDACTED__"
"""What OpenInference writes where it is told to hide inputs or outputs."""


def found(attributes: dict[str, Any], keys: tuple[str, ...]) -> object:
    """The first of these attributes that says something; None where none does."""
    values = (attributes.get(key) for key in keys)
    return next((value for value in values if value is not None and value != _HIDDEN), None)


def arguments(span: RawSpan) -> dict[str, Any] | None:
    """The arguments of the call; None where the span records none, not even that there are none."""
    told = found(span.attributes, _ARGUMENTS)
    if told is None:
        told = _parameters(span.attributes)
    if told is None:
        told = _in_events(span, "gen_ai.tool.message", "content")
    if told is None:
        told = _part(span, "gen_ai.input.messages", "tool_call", "arguments")
    if told is None:
        return None
    args = as_arguments(told)
    # Traceloop writes what the call was beside its arguments.
    inputs = args.get("inputs")
    return inputs if isinstance(inputs, dict) and "tags" in args else args


def result(span: RawSpan) -> tuple[str, bool | None]:
    """The text of the result, and its own word for whether the call succeeded, if it has one."""
    told = found(span.attributes, _RESULT)
    if told is None:
        told = _blocks(_in_events(span, "gen_ai.choice", "message"))
    if told is None:
        told = _part(span, "gen_ai.output.messages", "tool_call_response", "response")
    answer = as_object(_decoded(told, "{"))
    flag, content = answer.get("isError"), answer.get("content")
    if not isinstance(flag, bool):
        return as_text(told), None
    return as_text(content if isinstance(content, list) else told), not flag


def success(span: RawSpan, answered: bool | None) -> bool | None:
    """Whether the call succeeded, as the span says; `answered` is the word of the result itself."""
    status, kind = (span.attributes.get(key) for key in ("gen_ai.tool.status", "error.type"))
    failed = span.status == "error" or as_string(kind) or status == "error"
    if failed or answered is False:
        return False
    return True if span.status == "ok" or status == "success" or answered else None


def error(span: RawSpan) -> str:
    """The error's text; empty where the span has none apart from the result's."""
    raised = _in_events(span, "exception", "exception.message")
    kind = span.attributes.get("error.type") or _in_events(span, "exception", "exception.type")
    return span.message or as_string(raised) or as_string(kind)


def _parameters(attributes: dict[str, Any]) -> object:
    """OpenInference's `tool.parameters`, where they are not the schema that some put there."""
    told = attributes.get("tool.parameters")
    schema = as_object(_decoded(told, "{"))
    return None if told == _HIDDEN or isinstance(schema.get("properties"), dict) else told


def _in_events(span: RawSpan, event: str, key: str) -> object:
    """What the last event of that name says."""
    told = (attributes for name, attributes in reversed(span.events) if name == event)
    return next((attributes[key] for attributes in told if attributes.get(key) is not None), None)


def _part(span: RawSpan, messages: str, kind: str, key: str) -> object:
    """A part of the messages that the latest conventions put in an event, or on the span itself."""
    told = [attributes for name, attributes in span.events if name == _DETAILS]
    for attributes in (span.attributes, *told):
        for message in as_objects(_decoded(attributes.get(messages), "[")):
            for part in as_objects(message.get("parts")):
                if part.get("type") == kind and part.get(key) is not None:
                    return part[key]
    return None


def _blocks(told: object) -> object:
    """A message, of which an event has the content blocks as JSON text."""
    blocks = _decoded(told, "[")
    return blocks if isinstance(blocks, list) else told


def _decoded(told: object, opening: str) -> object:
    """What stands in JSON text that begins so; what is no text is as it is."""
    if not isinstance(told, str):
        return told
    try:
        return decode(told) if told.startswith(opening) else None
    except JsonError:
        return None
