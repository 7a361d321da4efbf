"""Events of OpenHands' agent SDK (version 1), which have a `kind` and name the tool itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.formats.openhands.results import STILL_RUNNING, find_exit_code
from policyguard.traces.item import Item
from policyguard.traces.parsing.json_shape import as_id, as_object, as_string
from policyguard.traces.parsing.measurements import from_iso
from policyguard.traces.parsing.message_content import as_arguments, as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_ACTION_KIND = "ActionEvent"
_MESSAGE_KIND = "MessageEvent"
_RESULT_KINDS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
_NON_CALL_TOOLS = ("finish", "think")
"""Tools that run nothing outside the agent."""


def is_event(value: object) -> bool:
    """Return whether it is an event of this version."""
    event = as_object(value)
    return event.get("kind") in (_ACTION_KIND, _MESSAGE_KIND, *_RESULT_KINDS) and "source" in event


def read_session(
    file: str, started: SessionStarted, history: Sequence[dict[str, Any]], line: int | None
) -> Iterator[Item]:
    """Yield one conversation; `line` is its line in a file of several."""
    builder = SessionBuilder(file, started)
    sizes = Counter(as_id(event.get("llm_response_id")) for event in history if _is_call(event))
    last_response, batch = "", ""
    ignored: set[str] = set()
    for event in history:
        at = from_iso(event.get("timestamp"))
        if _is_call(event):
            response = as_id(event.get("llm_response_id"))
            if not response or response != last_response:
                yield from builder.add_reply(at=at)
                yield from builder.abandon_open_calls()
                batch = builder.new_batch() if response and sizes[response] > 1 else ""
            last_response = response
            yield from builder.add_call(_parse_call(event, at), batch)
        elif event.get("kind") == _ACTION_KIND:
            ignored.add(as_id(event.get("tool_call_id")))
            yield from builder.add_reply(at=at)
        elif event.get("kind") in _RESULT_KINDS and as_id(event.get("tool_call_id")) not in ignored:
            yield from builder.add_result(_parse_result(event, at), line)
        elif event.get("kind") == _MESSAGE_KIND and event.get("source") == "user":
            builder.add_prompt(at)
        elif event.get("kind") == _MESSAGE_KIND and event.get("source") == "agent":
            yield from builder.add_reply(at=at)
    yield from builder.close()


def _is_call(event: dict[str, Any]) -> bool:
    return event.get("kind") == _ACTION_KIND and event.get("tool_name") not in _NON_CALL_TOOLS


def _parse_call(event: dict[str, Any], at: int | None) -> ImportedCall:
    action = as_object(event.get("action"))
    # The action holds the parsed arguments, without the model's assessment of the risk.
    args = {key: value for key, value in action.items() if key != "kind"}
    if action.get("kind") == "MCPToolAction":
        args = as_object(action.get("data"))
    elif not action:
        args = as_arguments(as_object(event.get("tool_call")).get("arguments"))
    tool = as_string(event.get("tool_name"))
    return ImportedCall(as_id(event.get("tool_call_id")), tool, args, at)


def _parse_result(event: dict[str, Any], at: int | None) -> ImportedResult:
    call = as_id(event.get("tool_call_id"))
    if event["kind"] != "ObservationEvent":
        text = as_text(event.get("error", event.get("rejection_reason")))
        return ImportedResult(call, text, ok=False, provenance="explicit", at=at)
    observation = as_object(event.get("observation"))
    text = as_text(observation.get("content", observation.get("output")))
    code = find_exit_code(as_object(observation.get("metadata")), observation)
    flag = observation.get("is_error")
    if code == STILL_RUNNING:
        return ImportedResult(call, text, at=at, state="pending")
    is_known = code is not None or isinstance(flag, bool)
    return ImportedResult(
        call,
        text,
        ok=not code and flag is not True if is_known else None,
        provenance="explicit" if is_known else "unknown",
        at=at,
        exit_code=code,
    )
