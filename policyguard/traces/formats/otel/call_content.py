"""The arguments, result, success and error that a tool's span records.

Each instrumentation has its own attributes for them, or writes them into events of the span.
"""

from __future__ import annotations

from typing import Any

from policyguard.traces.formats.otel.raw_spans import RawSpan
from policyguard.traces.parsing.json_shape import as_object, as_objects, as_string
from policyguard.traces.parsing.json_text import try_decode
from policyguard.traces.parsing.message_content import as_arguments, as_text

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
"""What OpenInference writes if it is configured to hide inputs or outputs."""


def first_value(attributes: dict[str, Any], keys: tuple[str, ...]) -> object:
    """Return the first of these attributes with a value, None if there is none."""
    values = (attributes.get(key) for key in keys)
    return next((value for value in values if value is not None and value != _REDACTED), None)


def parse_arguments(span: RawSpan) -> dict[str, Any] | None:
    """Return the arguments of the call, None if they are not recorded."""
    raw = first_value(span.attributes, _ARGUMENT_KEYS)
    if raw is None:
        raw = _tool_parameters(span.attributes)
    if raw is None:
        raw = _last_in_events(span, "gen_ai.tool.message", "content")
    if raw is None:
        raw = _message_part(span, "gen_ai.input.messages", "tool_call", "arguments")
    if raw is None:
        return None
    args = as_arguments(raw)
    # Traceloop wraps the arguments in a description of the call.
    inputs = args.get("inputs")
    return inputs if isinstance(inputs, dict) and "tags" in args else args


def parse_result(span: RawSpan) -> tuple[str, bool | None]:
    """Return the text of the result, and the success that the result itself records, if any."""
    raw = first_value(span.attributes, _RESULT_KEYS)
    if raw is None:
        raw = _decode_blocks(_last_in_events(span, "gen_ai.choice", "message"))
    if raw is None:
        raw = _message_part(span, "gen_ai.output.messages", "tool_call_response", "response")
    answer = as_object(_decode_if(raw, "{"))
    flag, content = answer.get("isError"), answer.get("content")
    if not isinstance(flag, bool):
        return as_text(raw), None
    return as_text(content if isinstance(content, list) else raw), not flag


def parse_success(span: RawSpan, result_flag: bool | None) -> bool | None:
    """Return whether the call succeeded; `result_flag` is the success in the result itself."""
    status, kind = (span.attributes.get(key) for key in ("gen_ai.tool.status", "error.type"))
    failed = span.status == "error" or as_string(kind) or status == "error"
    if failed or result_flag is False:
        return False
    return True if span.status == "ok" or status == "success" or result_flag else None


def parse_error(span: RawSpan) -> str:
    """Return the error's text; empty if the span has none besides the result's."""
    exception = _last_in_events(span, "exception", "exception.message")
    kind = span.attributes.get("error.type") or _last_in_events(span, "exception", "exception.type")
    return span.message or as_string(exception) or as_string(kind)


def _tool_parameters(attributes: dict[str, Any]) -> object:
    """Return OpenInference's `tool.parameters`, unless they are the tool's schema."""
    raw = attributes.get("tool.parameters")
    schema = as_object(_decode_if(raw, "{"))
    return None if raw == _REDACTED or isinstance(schema.get("properties"), dict) else raw


def _last_in_events(span: RawSpan, event: str, key: str) -> object:
    """Return the attribute from the last event of that name that has it."""
    values = (attributes.get(key) for name, attributes in reversed(span.events) if name == event)
    return next((value for value in values if value is not None), None)


def _message_part(span: RawSpan, messages: str, kind: str, key: str) -> object:
    """Return a part of the messages that the latest conventions put on the span or in an event."""
    details = [attributes for name, attributes in span.events if name == _DETAILS_EVENT]
    for attributes in (span.attributes, *details):
        for message in as_objects(_decode_if(attributes.get(messages), "[")):
            for part in as_objects(message.get("parts")):
                if part.get("type") == kind and part.get(key) is not None:
                    return part[key]
    return None


def _decode_blocks(message: object) -> object:
    blocks = _decode_if(message, "[")
    return blocks if isinstance(blocks, list) else message


def _decode_if(value: object, opening: str) -> object:
    """Decode JSON text that begins with `opening`; return None for other text."""
    if not isinstance(value, str):
        return value
    return try_decode(value) if value.startswith(opening) else None
