"""What the span of a tool records of its call: arguments, result, success and error.

Each instrumentation has its own attributes for them, or writes them into events of the span.
"""

from __future__ import annotations

from typing import Any

from policyguard.traces.formats.otel.raw_spans import RawSpan
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import as_object, as_objects, as_string
from policyguard.traces.parsing.json_text import JsonError, decode
from policyguard.traces.parsing.message_content import as_text

_ARGUMENT_KEYS = (
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
_RESULT_KEYS = (
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
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_REDACTED = "__REDACTED__"
"""What OpenInference writes where it is told to hide inputs or outputs."""


def first_value(attributes: dict[str, Any], keys: tuple[str, ...]) -> object:
    """The first of these attributes that says something; None where none does."""
    values = (attributes.get(key) for key in keys)
    return next((value for value in values if value is not None and value != _REDACTED), None)


def parse_arguments(span: RawSpan) -> dict[str, Any] | None:
    """The arguments of the call; None where the span records none, not even that there are none."""
    told = first_value(span.attributes, _ARGUMENT_KEYS)
    if told is None:
        told = _tool_parameters(span.attributes)
    if told is None:
        told = _last_in_events(span, "gen_ai.tool.message", "content")
    if told is None:
        told = _message_part(span, "gen_ai.input.messages", "tool_call", "arguments")
    if told is None:
        return None
    args = as_arguments(told)
    # Traceloop writes what the call was beside its arguments.
    inputs = args.get("inputs")
    return inputs if isinstance(inputs, dict) and "tags" in args else args


def parse_result(span: RawSpan) -> tuple[str, bool | None]:
    """The text of the result, and its own word for whether the call succeeded, if it has one."""
    told = first_value(span.attributes, _RESULT_KEYS)
    if told is None:
        told = _decode_blocks(_last_in_events(span, "gen_ai.choice", "message"))
    if told is None:
        told = _message_part(span, "gen_ai.output.messages", "tool_call_response", "response")
    answer = as_object(_try_decode(told, "{"))
    flag, content = answer.get("isError"), answer.get("content")
    if not isinstance(flag, bool):
        return as_text(told), None
    return as_text(content if isinstance(content, list) else told), not flag


def parse_success(span: RawSpan, result_flag: bool | None) -> bool | None:
    """Whether the call succeeded, as the span says; `answered` is the word of the result itself."""
    status, kind = (span.attributes.get(key) for key in ("gen_ai.tool.status", "error.type"))
    failed = span.status == "error" or as_string(kind) or status == "error"
    if failed or result_flag is False:
        return False
    return True if span.status == "ok" or status == "success" or result_flag else None


def parse_error(span: RawSpan) -> str:
    """The error's text; empty where the span has none apart from the result's."""
    raised = _last_in_events(span, "exception", "exception.message")
    kind = span.attributes.get("error.type") or _last_in_events(span, "exception", "exception.type")
    return span.message or as_string(raised) or as_string(kind)


def _tool_parameters(attributes: dict[str, Any]) -> object:
    """OpenInference's `tool.parameters`, where they are not the schema that some put there."""
    told = attributes.get("tool.parameters")
    schema = as_object(_try_decode(told, "{"))
    return None if told == _REDACTED or isinstance(schema.get("properties"), dict) else told


def _last_in_events(span: RawSpan, event: str, key: str) -> object:
    """What the last event of that name says."""
    told = (attributes for name, attributes in reversed(span.events) if name == event)
    return next((attributes[key] for attributes in told if attributes.get(key) is not None), None)


def _message_part(span: RawSpan, messages: str, kind: str, key: str) -> object:
    """A part of the messages that the latest conventions put in an event, or on the span itself."""
    told = [attributes for name, attributes in span.events if name == _DETAILS_EVENT]
    for attributes in (span.attributes, *told):
        for message in as_objects(_try_decode(attributes.get(messages), "[")):
            for part in as_objects(message.get("parts")):
                if part.get("type") == kind and part.get(key) is not None:
                    return part[key]
    return None


def _decode_blocks(message: object) -> object:
    """A message, of which an event has the content blocks as JSON text."""
    blocks = _try_decode(message, "[")
    return blocks if isinstance(blocks, list) else message


def _try_decode(value: object, opening: str) -> object:
    """What stands in JSON text that begins so; what is no text is as it is."""
    if not isinstance(value, str):
        return value
    try:
        return decode(value) if value.startswith(opening) else None
    except JsonError:
        return None
