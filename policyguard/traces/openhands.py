"""OpenHands event streams: a list of events, or rows of `output.jsonl` with a `history` of them.

In old files the history is a list of `[action, observation]` pairs, and the arguments of an action
stand among its other keys. Version 1 writes events of another kind, also one a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces import openhands_v1, usage
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.openhands_results import is_result, result
from policyguard.traces.session import Call, SessionEvents
from policyguard.traces.shape import as_amount, as_id, as_list, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.times import from_iso

FORMAT = "openhands"

_NO_CALLS = (
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

_NO_ARGUMENTS = ("thought",)
_FLAT_NO_ARGUMENTS = (
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
"""In the oldest files: what stands beside the arguments of an action."""

_ALONE = (
    "one event of a conversation by itself: write all of them into one file, one a line "
    "(jq -c . events/*.json > conversation.jsonl)"
)


def detect(sample: Sample) -> bool:
    """Events or pairs of them in a list, or in the `history` of a document or a line."""
    document = sample.document
    rows = as_objects(document) if isinstance(document, list) else []
    holders = (as_object(document), *(as_object(record) for record in sample.records), *rows)
    return (
        _are_events(document)
        or any(_are_events(row.get("history")) for row in holders)
        or any(openhands_v1.is_event(record) for record in (document, *sample.records))
    )


def _are_events(value: object) -> bool:
    return any(_is_typical(event) for event in _events(as_list(value)))


def _is_typical(event: dict[str, Any]) -> bool:
    if openhands_v1.is_event(event):
        return True
    if isinstance(event.get("observation"), str):
        return isinstance(event.get("content"), str) and "role" not in event
    # Histories of other agents have actions too, which are the text of a command.
    known = isinstance(event.get("args"), dict) or event.get("action") == "message"
    return isinstance(event.get("action"), str) and known and "role" not in event


def _events(history: list[Any]) -> Iterator[dict[str, Any]]:
    """Each event, pairs taken apart."""
    for entry in history:
        yield from (as_objects(entry) if isinstance(entry, list) else as_objects([entry]))


def read(source: Source, met: Met) -> Iterator[Item]:
    """One session a stream: the file, or each row."""
    document = source.sample.document
    if isinstance(document, list) and _are_events(document):
        yield from _session(source, source.name, document)
        return
    if any(openhands_v1.is_event(record) for record in source.sample.records):
        yield from _lines(source)
        return
    if openhands_v1.is_event(document):
        yield Skipped(source.file, None, _ALONE)
        return
    taken: set[str] = set()
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
        if history and not _are_events(history):
            yield Skipped(source.file, line, f"session `{name}`: a history of another agent")
            continue
        # A file joined from several runs repeats their instances.
        unique = f"{source.name}:{index}" if name in taken else name
        taken.add(unique)
        yield from _session(source, unique, history, line)


def _lines(source: Source) -> Iterator[Item]:
    """Version 1, an event a line. The service itself writes each into a file of its own."""
    lines = list(source.lines())
    yield from (entry for entry in lines if isinstance(entry, Skipped))
    history = [entry[1] for entry in lines if not isinstance(entry, Skipped)]
    if len(history) == 1:
        yield Skipped(source.file, None, _ALONE)
    else:
        yield from _session(source, source.name, history)


def _session(
    source: Source, name: str, history: list[Any], line: int | None = None
) -> Iterator[Item]:
    odd = sum(not isinstance(entry, dict | list) for entry in history)
    if odd:
        yield Skipped(source.file, line, f"session `{name}`: {odd} entries that are no events")
    events = list(_events(history))
    first = next((at for event in events if (at := from_iso(event.get("timestamp")))), None)
    started = Started(session=name, at=first, agent=FORMAT)
    if any(openhands_v1.is_event(event) for event in events):
        yield from openhands_v1.session(source.file, started, events, line)
        return
    stream = _Stream(SessionEvents(source.file, started), events, line)
    yield from stream.events.start()
    for event in events:
        yield from stream.event(event)
    yield from stream.events.close(at=stream.at)


class _Stream:
    """Follows the events of one session."""

    def __init__(
        self, events: SessionEvents, history: list[dict[str, Any]], line: int | None
    ) -> None:
        self.events = events
        self.at: int | None = None
        self._line = line
        calls = (event for event in history if _is_call(event))
        self._together = Counter(_response(event) for event in calls)
        self._batches: dict[str, str] = {}
        self._response = ""
        self._names: dict[str, str] = {}
        self._counted: set[str] = set()
        self._tokens = 0
        self._cost = 0.0

    def event(self, event: dict[str, Any]) -> Iterator[Item]:
        """One event of the stream."""
        at = from_iso(event.get("timestamp"))
        self.at = at or self.at
        if "action" in event:
            if _is_prompt(event):
                self.events.prompt(at)
            elif _is_of_the_agent(event):
                yield from self.events.reply(*self._used(event), at)
                if _is_call(event):
                    yield from self._call(event, at)
        elif is_result(event):
            yield from self._result(event, at)

    def _call(self, event: dict[str, Any], at: int | None) -> Iterator[Item]:
        response = _response(event)
        if not response or response != self._response:
            yield from self.events.move_on()
        self._response = response
        batch = ""
        if response and self._together[response] > 1:
            batch = self._batches.setdefault(response, "") or self.events.batch()
            self._batches[response] = batch
        told = as_object(event.get("tool_call_metadata"))
        name = as_id(told.get("tool_call_id")) or as_id(event.get("id"))
        self._names[as_id(event.get("id"))] = name
        tool = as_string(told.get("function_name")) or event["action"]
        yield from self.events.call(Call(name, tool, _arguments(event), at), batch)

    def _result(self, event: dict[str, Any], at: int | None) -> Iterator[Item]:
        cause = as_id(event.get("cause"))
        told = as_id(as_object(event.get("tool_call_metadata")).get("tool_call_id"))
        if cause and cause not in self._names:
            return  # it answers an action that is no call
        # Without a cause it is a result only where it stands in the oldest files, behind its call.
        if cause or "id" not in event:
            call = self._names.get(cause, told)
            if cause or self.events.waits:
                yield from self.events.result(result(event, call, at), self._line)

    def _used(self, event: dict[str, Any]) -> tuple[int, float]:
        """What was used since the last event: the counts of the stream only grow.

        Without such counts what the answer of the model says, once an answer.
        """
        metrics = as_object(event.get("llm_metrics"))
        if not metrics:
            answer = as_object(as_object(event.get("tool_call_metadata")).get("model_response"))
            fresh = _response(event) not in self._counted
            self._counted.add(_response(event))
            return (usage.tokens(answer.get("usage")) if fresh else 0), 0.0
        used = as_object(metrics.get("accumulated_token_usage"))
        keys = ("prompt_tokens", "completion_tokens")
        tokens = sum(int(as_amount(used.get(key)) or 0) for key in keys)
        cost = float(as_amount(metrics.get("accumulated_cost")) or 0)
        more = max(tokens - self._tokens, 0), max(cost - self._cost, 0.0)
        self._tokens, self._cost = max(tokens, self._tokens), max(cost, self._cost)
        return more


def _is_of_the_agent(event: dict[str, Any]) -> bool:
    """In the oldest files nothing says who acts: all but the messages is the agent's."""
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
        and action not in _NO_CALLS
        and _is_of_the_agent(event)
    )


def _response(event: dict[str, Any]) -> str:
    """The answer of the model in which an action was asked for."""
    told = as_object(event.get("tool_call_metadata"))
    return as_id(as_object(told.get("model_response")).get("id"))


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    if isinstance(args, dict):
        return {key: value for key, value in args.items() if key not in _NO_ARGUMENTS}
    return {key: value for key, value in event.items() if key not in _FLAT_NO_ARGUMENTS}
