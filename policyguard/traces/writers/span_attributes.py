"""Names and values of span attributes: OpenTelemetry's for generative AI, and our own.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ (development status): its names are
strings here, since the constants of its Python package are deprecated. It has none for decisions.
"""

from __future__ import annotations

from policyguard.model.event import Admitted, Completed, Refused

AttributeValue = str | bool | int | float | tuple[str, ...]

OPERATION = "gen_ai.operation.name"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
TOOL_NAME = "gen_ai.tool.name"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
CONVERSATION = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
ERROR_TYPE = "error.type"
REFUSED = "policyguard.refused"
"""The `error.type` of a call that did not run."""

DECISION = "policyguard.decision"
"""The event of a decision."""
EFFECT = "policyguard.effect"
ENTRY_KIND = "policyguard.entry.kind"
TOOL_CLASS = "policyguard.tool.class"


def span_name(event: Admitted | Refused) -> str:
    """Return the name of a call's span."""
    return f"{EXECUTE_TOOL} {event.shown_tool}"


def call_attributes(event: Admitted | Refused) -> dict[str, AttributeValue]:
    """Return what a call's span says of the call."""
    attributes: dict[str, AttributeValue] = {
        OPERATION: EXECUTE_TOOL,
        TOOL_NAME: event.shown_tool,
        CONVERSATION: event.session,
    }
    if event.host_call:
        attributes["gen_ai.tool.call.id"] = event.host_call
    if event.class_:
        attributes[TOOL_CLASS] = event.class_
    return attributes


def decision_attributes(event: Admitted | Refused) -> dict[str, AttributeValue]:
    """Return what the event of a decision says: its effect, and the policy's entries that fired."""
    attributes: dict[str, AttributeValue] = {EFFECT: event.effect}
    if event.call:
        attributes["policyguard.call.id"] = event.call
    if event.violations:
        attributes["policyguard.entries"] = event.violations
    if event.would:
        attributes["policyguard.would"] = event.would
    return attributes


def entry_kind(event: Admitted | Refused) -> str:
    """Return the section of the strongest entry that fired, such as `limits`; empty without one."""
    return event.violations[0].partition("/")[0] if event.violations else ""


def error_type(event: Completed) -> str:
    """Return the kind of a failure, of few values; empty for any other result."""
    if event.state == "cancelled":
        return "cancelled"
    if event.ok is not False:
        return ""
    if event.timeout_by:
        return "timeout"
    return "tool_error" if event.status is None else str(event.status)
