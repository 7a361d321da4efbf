"""OpenHands event streams: a list of events, or rows of `output.jsonl` with a `history` of them.

In old files the history is a list of `[action, observation]` pairs, and the arguments of an action
are mixed with its other keys. Version 1 writes other events, also one per line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.openhands import version_1
from policyguard.traces.formats.openhands.results import is_result, parse_result
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import count_tokens, from_iso
from policyguard.traces.session_builder import ImportedCall, SessionBuilder

FORMAT = "openhands"

_NON_CALL_ACTIONS = (
    "message",
    "system",
    "think",
    "finish",
    "reject",
    "recall",
    "null",
    "change_agent_state",
    "condensation",
    "condensation_request",
    "loop_recovery",
)
"""Actions that run nothing outside the agent."""

_STATE_ACTIONS = ("system", "recall", "null", "change_agent_state")
"""Actions with which OpenHands prepares the agent or notes its state, without a message."""

_MCP_ACTION = "call_tool_mcp"
"""The action that calls any tool of an MCP server: its arguments name the tool."""

_NON_ARGUMENTS = ("thought",)
_FLAT_NON_ARGUMENTS = (
    "action",
    "thought",
    "source",
    "id",
    "timestamp",
    "message",
    "keep_prompt",
    "is_confirmed",
    "confirmation_state",
    "action_risk",
    "security_risk",
    "kernel_init_code",
)
"""The keys of an action that are not arguments, in the oldest files."""

_SINGLE_EVENT = (
    "a single event of a conversation: join all of them into one file, one per line "
    "(jq -c . events/*.json > conversation.jsonl)"
)


def detect(sample: Sample) -> bool:
    """Return whether a list, or the `history` of a document or a line, has events or pairs."""
    document = sample.document
    rows = as_objects(document) if isinstance(document, list) else []
    holders = (as_object(document), *(as_object(record) for record in sample.records), *rows)
    return (
        _has_events(document)
        or any(_has_events(row.get("history")) for row in holders)
        or any(version_1.is_event(record) for record in (document, *sample.records))
    )


def _has_events(value: object) -> bool:
    return any(_is_typical(event) for event in _iter_events(as_list(value)))


def _is_typical(event: dict[str, Any]) -> bool:
    if version_1.is_event(event):
        return True
    if isinstance(event.get("observation"), str):
        return isinstance(event.get("content"), str) and "role" not in event
    # Histories of other agents have actions too, which are the text of a command.
    known = isinstance(event.get("args"), dict) or event.get("action") == "message"
    return isinstance(event.get("action"), str) and known and "role" not in event


def _iter_events(history: list[Any]) -> Iterator[dict[str, Any]]:
    for entry in history:
        yield from (as_objects(entry) if isinstance(entry, list) else as_objects([entry]))


def read(source: Source) -> Iterator[Item]:
    """Yield one session per stream: the file, or each row."""
    document = source.sample.document
    if isinstance(document, list) and _has_events(document):
        yield from _read_session(source, source.name, document)
        return
    if any(version_1.is_event(record) for record in source.sample.records):
        yield from _read_lines(source)
        return
    if version_1.is_event(document):
        yield Skipped(source.file, None, _SINGLE_EVENT)
        return
    used_ids: set[str] = set()
    for index, entry in enumerate(source.values()):
        if isinstance(entry, Skipped):
            yield entry
            continue
        line, row = entry
        history = as_object(row).get("history")
        name = as_id(as_object(row).get("instance_id")) or f"{source.name}:{index}"
        if not isinstance(history, list):
            yield Skipped(source.file, line, f"session `{name}`: no history")
            continue
        if history and not _has_events(history):
            yield Skipped(source.file, line, f"session `{name}`: the history of another agent")
            continue
        # A file joined from several runs repeats their instances.
        unique = f"{source.name}:{index}" if name in used_ids else name
        used_ids.add(unique)
        yield from _read_session(source, unique, history, line)


def _read_lines(source: Source) -> Iterator[Item]:
    """Yield a version 1 session with one event per line; the service writes one file per event."""
    lines = list(source.lines())
    yield from (entry for entry in lines if isinstance(entry, Skipped))
    history = [entry[1] for entry in lines if not isinstance(entry, Skipped)]
    if len(history) == 1:
        yield Skipped(source.file, None, _SINGLE_EVENT)
    else:
        yield from _read_session(source, source.name, history)


def _read_session(
    source: Source, name: str, history: list[Any], line: int | None = None
) -> Iterator[Item]:
    odd = sum(not isinstance(entry, dict | list) for entry in history)
    if odd:
        yield Skipped(source.file, line, f"session `{name}`: {odd} entries that are not events")
    events = list(_iter_events(history))
    started = SessionStarted(session=name, agent=FORMAT)
    if any(version_1.is_event(event) for event in events):
        yield from version_1.read_session(source.file, started, events, line)
        return
    stream = _StreamReader(SessionBuilder(source.file, started), events, line)
    for event in events:
        yield from stream.read_event(event)
    yield from stream.builder.close()


class _StreamReader:
    def __init__(self, builder: SessionBuilder, history: list[Any], line: int | None) -> None:
        self.builder = builder
        self._line = line
        calls = (event for event in history if _is_call(event))
        self._calls_per_response = Counter(_response_id(event) for event in calls)
        self._batches: dict[str, str] = {}
        self._last_response = ""
        self._call_ids: dict[str, str] = {}
        self._counted_responses: set[str] = set()
        self._counted_tokens = 0
        self._counted_cost = 0.0

    def read_event(self, event: dict[str, Any]) -> Iterator[Item]:
        """Yield the items of an event."""
        at = from_iso(event.get("timestamp"))
        if "action" in event:
            if _is_prompt(event):
                self.builder.add_prompt(at)
            elif _is_by_agent(event):
                usage = self._new_usage(event)
                if any(usage) or event["action"] not in _STATE_ACTIONS:
                    yield from self.builder.add_reply(*usage, at)
                if _is_call(event):
                    yield from self._read_call(event, at)
        elif is_result(event):
            yield from self._read_result(event, at)

    def _read_call(self, event: dict[str, Any], at: int | None) -> Iterator[Item]:
        response = _response_id(event)
        if not response or response != self._last_response:
            yield from self.builder.abandon_open_calls()
        self._last_response = response
        batch = ""
        if response and self._calls_per_response[response] > 1:
            batch = self._batches.setdefault(response, "") or self.builder.new_batch()
            self._batches[response] = batch
        metadata = as_object(event.get("tool_call_metadata"))
        host_id = as_id(metadata.get("tool_call_id"))
        name = host_id or as_id(event.get("id"))
        self._call_ids[as_id(event.get("id"))] = name
        tool = as_string(metadata.get("function_name")) or event["action"]
        args = _parse_arguments(event)
        if event["action"] == _MCP_ACTION and isinstance(args.get("arguments"), dict):
            tool, args = as_string(args.get("name")) or tool, args["arguments"]
        call = ImportedCall(name, tool, args, at, has_host_id=bool(host_id))
        yield from self.builder.add_call(call, batch)

    def _read_result(self, event: dict[str, Any], at: int | None) -> Iterator[Item]:
        cause = as_id(event.get("cause"))
        recorded_id = as_id(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
        if cause and cause not in self._call_ids:
            return  # it answers an action that is not a call
        # Only in the oldest files, which have no ids, is an observation without a cause a result.
        if cause or "id" not in event:
            call = self._call_ids.get(cause, recorded_id)
            if cause or self.builder.has_open_calls:
                yield from self.builder.add_result(parse_result(event, call, at), self._line)

    def _new_usage(self, event: dict[str, Any]) -> tuple[int, float]:
        """Return tokens and cost since the last event, from the stream's accumulated counts.

        Without such counts, return those of the model's answer, once per answer.
        """
        metrics = as_object(event.get("llm_metrics"))
        if not metrics:
            answer = as_object(as_object(event.get("tool_call_metadata")).get("model_response"))
            is_new = _response_id(event) not in self._counted_responses
            self._counted_responses.add(_response_id(event))
            return (count_tokens(answer.get("usage")) if is_new else 0), 0.0
        counts = as_object(metrics.get("accumulated_token_usage"))
        keys = ("prompt_tokens", "completion_tokens")
        tokens = sum(int(as_amount(counts.get(key)) or 0) for key in keys)
        cost = float(as_amount(metrics.get("accumulated_cost")) or 0)
        growth = max(tokens - self._counted_tokens, 0), max(cost - self._counted_cost, 0.0)
        self._counted_tokens, self._counted_cost = (
            max(tokens, self._counted_tokens),
            max(cost, self._counted_cost),
        )
        return growth


def _is_by_agent(event: dict[str, Any]) -> bool:
    """Return whether the agent acts; in the oldest files, all actions but messages are its own."""
    if "source" not in event:
        return event.get("action") != "message"
    return bool(event["source"] == "agent")


def _is_prompt(event: dict[str, Any]) -> bool:
    return event.get("action") == "message" and event.get("source", "user") == "user"


def _is_call(event: dict[str, Any]) -> bool:
    action = event.get("action")
    return (
        isinstance(action, str)
        and bool(action)
        and action not in _NON_CALL_ACTIONS
        and _is_by_agent(event)
    )


def _response_id(event: dict[str, Any]) -> str:
    metadata = as_object(event.get("tool_call_metadata"))
    return as_id(as_object(metadata.get("model_response")).get("id"))


def _parse_arguments(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    if isinstance(args, dict):
        return {key: value for key, value in args.items() if key not in _NON_ARGUMENTS}
    return {key: value for key, value in event.items() if key not in _FLAT_NON_ARGUMENTS}
