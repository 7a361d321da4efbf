"""OpenHands' agent SDK (version 1): events with a `kind`, whose calls have the tool's own name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.formats.openhands.results import STILL_RUNNING, find_exit_code
from policyguard.traces.item import Item
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import as_id, as_object, as_string
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.parsing.timestamps import from_iso
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_ACTION_KIND = "ActionEvent"
_MESSAGE_KIND = "MessageEvent"
_RESULT_KINDS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
_NON_CALL_TOOLS = ("finish", "think")
"""Tools that run nothing outside the agent."""


def is_event(value: object) -> bool:
    """Whether it is an event by which this version is known."""
    event = as_object(value)
    return event.get("kind") in (_ACTION_KIND, _MESSAGE_KIND, *_RESULT_KINDS) and "source" in event


def read_session(
    file: str, started: Started, history: Sequence[dict[str, Any]], line: int | None
) -> Iterator[Item]:
    """One conversation; `line` is where it stands in a file of several."""
    events = SessionBuilder(file, started)
    yield from events.start()
    together = Counter(as_id(event.get("llm_response_id")) for event in history if _is_call(event))
    answer, batch, at = "", "", None
    silent: set[str] = set()
    for event in history:
        now = from_iso(event.get("timestamp"))
        at = now or at
        if _is_call(event):
            response = as_id(event.get("llm_response_id"))
            if not response or response != answer:
                yield from events.add_reply()
                yield from events.abandon_open_calls()
                batch = events.new_batch() if response and together[response] > 1 else ""
            answer = response
            yield from events.add_call(_parse_call(event, now), batch)
        elif event.get("kind") == _ACTION_KIND:
            silent.add(as_id(event.get("tool_call_id")))
            yield from events.add_reply()
        elif event.get("kind") in _RESULT_KINDS and as_id(event.get("tool_call_id")) not in silent:
            yield from events.add_result(_parse_result(event, now), line)
        elif event.get("kind") == _MESSAGE_KIND and event.get("source") == "user":
            events.add_prompt(now)
        elif event.get("kind") == _MESSAGE_KIND and event.get("source") == "agent":
            yield from events.add_reply()
    yield from events.close(at=at)


def _is_call(event: dict[str, Any]) -> bool:
    return event.get("kind") == _ACTION_KIND and event.get("tool_name") not in _NON_CALL_TOOLS


def _parse_call(event: dict[str, Any], at: int | None) -> ImportedCall:
    action = as_object(event.get("action"))
    # The action is what was made of the arguments, without what the model says of its risk.
    args = {key: value for key, value in action.items() if key != "kind"}
    if action.get("kind") == "MCPToolAction":
        args = as_object(action.get("data"))
    elif not action:
        args = as_arguments(as_object(event.get("tool_call")).get("arguments"))
    return ImportedCall(
        as_id(event.get("tool_call_id")), as_string(event.get("tool_name")), args, at
    )


def _parse_result(event: dict[str, Any], at: int | None) -> ImportedResult:
    call = as_id(event.get("tool_call_id"))
    if event["kind"] != "ObservationEvent":
        text = as_text(event.get("error", event.get("rejection_reason")))
        return ImportedResult(call, text, ok=False, provenance="explicit", at=at)
    seen = as_object(event.get("observation"))
    text = as_text(seen.get("content", seen.get("output")))
    code, flag = find_exit_code(as_object(seen.get("metadata")), seen), seen.get("is_error")
    if code == STILL_RUNNING:
        return ImportedResult(call, text, at=at, is_pending=True)
    told = code is not None or isinstance(flag, bool)
    return ImportedResult(
        call,
        text,
        ok=not code and flag is not True if told else None,
        provenance="explicit" if told else "unknown",
        at=at,
        exit_code=code,
    )
