"""inspect_ai logs: `.eval`, a zip archive with one member per sample, or a JSON document.

The messages of a sample contain its calls, its events their times and the model's usage.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped, UnreadableError
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_seconds,
    as_string,
)
from policyguard.traces.parsing.measurements import count_tokens, from_iso
from policyguard.traces.parsing.message_content import as_arguments, as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "inspect-ai"

_HEADER_MEMBERS = ("header.json", "_journal/start.json")
_SAMPLE_MEMBER = re.compile(r"samples/.+\.json")

_PREFIX = "attachment://"

MAX_CHARACTERS = 1 << 26
"""Characters that all references of a sample may expand to: many references to one long text could
fill any memory."""

_NESTING_TYPES = ("tool", "subtask")
"""The kinds of event that contain other events in older versions."""


def detect(sample: Sample) -> bool:
    """Return whether it is an archive with the header of a log, or a log as a document."""
    if sample.members:
        return any(name in _HEADER_MEMBERS for name in sample.members)
    document = as_object(sample.document)
    return isinstance(document.get("eval"), dict) and (
        isinstance(document.get("samples"), list) or isinstance(document.get("plan"), dict)
    )


def read(source: Source) -> Iterator[Item]:
    """Yield one session per sample and epoch."""
    used_ids: set[str] = set()
    index = -1
    for index, sample in enumerate(_iter_samples(source)):
        if isinstance(sample, Skipped):
            yield sample
            continue
        name = f"{source.name}:{as_id(sample.get('id'))}/{as_id(sample.get('epoch'))}"
        unique = f"{source.name}:{index}" if name in used_ids else name
        used_ids.add(unique)
        if isinstance(sample.get("messages"), list):
            yield from _SampleReader(source, unique, sample).items()
        else:
            yield Skipped(source.file, None, f"session `{unique}`: no messages")
    if index < 0:
        yield Skipped(source.file, None, "a log without samples")


def _iter_samples(source: Source) -> Iterator[dict[str, Any] | Skipped]:
    names = source.sample.members
    if not names:
        for index, sample in enumerate(as_list(as_object(source.sample.document).get("samples"))):
            reason = f"sample {index}: not an object"
            yield sample if isinstance(sample, dict) else Skipped(source.file, None, reason)
        return
    for name in names:
        if not _SAMPLE_MEMBER.fullmatch(name):
            continue
        try:
            sample = source.read_member(name)
        except UnreadableError as error:
            yield Skipped(source.file, None, f"`{name}`: {error}")
            continue
        reason = f"`{name}`: not an object"
        yield sample if isinstance(sample, dict) else Skipped(source.file, None, reason)


class _SampleReader:
    def __init__(self, source: Source, name: str, sample: dict[str, Any]) -> None:
        self._file = source.file
        self._name = name
        self._messages: list[Any] = sample["messages"]
        self._attachments = _Attachments(as_object(sample.get("attachments")))
        events = as_objects(sample.get("events"))
        call_ids = [as_id(call.get("id")) for call in self._message_calls()]
        self._sample_events = _SampleEvents(events, call_ids)
        self._has_replied = False
        self._ended_at = from_iso(sample.get("completed_at"))
        # A sample may wait for days, prepared, before the agent's first message.
        started = SessionStarted(session=name, at=self._sample_events.first_time())
        self._builder = SessionBuilder(source.file, started)

    def items(self) -> Iterator[Item]:
        """Yield the session's events and its skipped parts."""
        for index, message in enumerate(self._messages):
            if isinstance(message, dict) and isinstance(message.get("role"), str):
                yield from self._read_message(message)
            else:
                reason = f"session `{self._name}`, message {index}: no role"
                yield Skipped(self._file, None, reason)
        yield from self._builder.close(at=self._ended_at)
        if self._attachments.is_truncated:
            reason = f"session `{self._name}`: attachments beyond the size limit are not resolved"
            yield Skipped(self._file, None, reason)
        yield from self._skip_unmatched()

    def _read_message(self, message: dict[str, Any]) -> Iterator[Item]:
        role = message["role"]
        if role == "assistant":
            event = self._sample_events.model_event(as_id(message.get("id")))
            counts = as_object(as_object(event.get("output")).get("usage"))
            total = as_amount(counts.get("total_tokens"))
            at = from_iso(event.get("completed")) or from_iso(event.get("timestamp"))
            self._has_replied = True
            yield from self._builder.add_reply(int(total or count_tokens(counts)), at=at)
            calls = as_objects(message.get("tool_calls"))
            if calls:
                self._sample_events.abandon_open_calls()
            yield from self._builder.add_calls([self._parse_call(call) for call in calls])
        elif role == "tool":
            yield from self._builder.add_result(self._parse_result(message))
        # After the agent's first message, `user` messages come from the harness.
        elif role == "user" and (not self._has_replied or message.get("source") == "input"):
            self._builder.add_prompt()

    def _message_calls(self) -> Iterator[dict[str, Any]]:
        for message in as_objects(self._messages):
            if message.get("role") == "assistant":
                yield from as_objects(message.get("tool_calls"))

    def _parse_call(self, call: dict[str, Any]) -> ImportedCall:
        name = as_id(call.get("id"))
        function = call.get("function")
        return ImportedCall(
            id=name,
            tool=as_string(function) or as_string(as_object(function).get("name")),
            args=as_object(self._attachments.resolve(as_arguments(call.get("arguments")))),
            at=from_iso(self._sample_events.take_call_event(name).get("timestamp")),
        )

    def _parse_result(self, message: dict[str, Any]) -> ImportedResult:
        name = as_id(message.get("tool_call_id"))
        event = self._sample_events.take_result_event(name)
        error = message.get("error")
        detail = as_string(as_object(error).get("message")) or as_text(error)
        return ImportedResult(
            call=name,
            text=as_text(self._attachments.resolve(message.get("content"))),
            ok=error is None,
            provenance="explicit",
            at=from_iso(event.get("completed")),
            error=as_text(self._attachments.resolve(detail)) if error is not None else None,
            duration=as_seconds(event.get("working_time")),
        )

    def _skip_unmatched(self) -> Iterator[Skipped]:
        """Report calls without a message: of other agents, or dropped from the messages."""
        tools = self._sample_events.count_unmatched()
        if tools:
            counts = ", ".join(f"{count} of `{tool}`" for tool, count in sorted(tools.items()))
            reason = f"session `{self._name}`: calls only in its events: {counts}"
            yield Skipped(self._file, None, reason)


class _Attachments:
    """A resolver that replaces references with their texts."""

    def __init__(self, texts: dict[str, Any]) -> None:
        self._texts = texts
        self._remaining = MAX_CHARACTERS
        self.is_truncated = False
        """Whether references were left because their texts are too long."""

    def resolve(self, value: object) -> object:
        """Return the value with each reference replaced; references inside texts stay."""
        if not self._texts:
            return value
        root = [value]
        queue: list[tuple[Any, Any]] = [(root, 0)]
        while queue:
            holder, key = queue.pop()
            part = holder[key]
            if isinstance(part, str):
                holder[key] = self._resolve_text(part)
            elif isinstance(part, list):
                holder[key] = copy = list(part)
                queue += [(copy, index) for index in range(len(copy))]
            elif isinstance(part, dict):
                holder[key] = fields = dict(part)
                queue += [(fields, name) for name in fields]
        return root[0]

    def _resolve_text(self, text: str) -> str:
        if not text.startswith(_PREFIX):
            return text
        attached = self._texts.get(text.removeprefix(_PREFIX))
        if not isinstance(attached, str):
            return text
        if len(attached) > self._remaining:
            self.is_truncated = True
            return text
        self._remaining -= len(attached)
        return attached


class _SampleEvents:
    """An index of a sample's events; `call_ids` are those of its messages, in order."""

    def __init__(self, events: object, call_ids: list[str]) -> None:
        flat = list(_flatten(events))
        model_events = [event for event in flat if event.get("event") == "model"]
        self._agent_events = [event for event in flat if event.get("event") in ("model", "tool")]
        self._model_events = {_message_id(event): event for event in model_events}
        tool_events: dict[str, list[dict[str, Any]]] = {}
        for event in flat:
            if event.get("event") == "tool":
                tool_events.setdefault(as_id(event.get("id")), []).append(event)
        self._call_events: dict[str, deque[dict[str, Any]]] = {}
        self._open_events: dict[str, deque[dict[str, Any]]] = {}
        self._unmatched: list[dict[str, Any]] = []
        counts = Counter(call_ids)
        for id_, same_id in tool_events.items():
            extra = max(len(same_id) - counts[id_], 0)
            self._unmatched += same_id[:extra]
            # If several calls share an id and the counts differ, events cannot be matched.
            if len(same_id) == counts[id_] or counts[id_] == 1:
                self._call_events[id_] = deque(same_id[extra:])

    def first_time(self) -> int | None:
        """Return when the agent's first call or message began."""
        times = [from_iso(event.get("timestamp")) for event in self._agent_events]
        return min((at for at in times if at is not None), default=None)

    def model_event(self, message: str) -> dict[str, Any]:
        """Return the model's event for a message, or an empty one."""
        return self._model_events.get(message, {})

    def abandon_open_calls(self) -> None:
        """Forget calls without a result: the agent has moved on."""
        self._open_events.clear()

    def take_call_event(self, id_: str) -> dict[str, Any]:
        """Return the event of the next call with that id, or an empty one."""
        event = _take_next(self._call_events, id_)
        self._open_events.setdefault(id_, deque()).append(event)
        return event

    def take_result_event(self, id_: str) -> dict[str, Any]:
        """Return the event of the oldest open call with that id, or an empty one."""
        return _take_next(self._open_events, id_)

    def count_unmatched(self) -> Counter[str]:
        """Count the calls without a message, by tool: of other agents, or dropped."""
        return Counter(as_string(event.get("function")) for event in self._unmatched)


def _flatten(events: object) -> Iterator[dict[str, Any]]:
    waiting = as_objects(events)[::-1]
    while waiting:
        event = waiting.pop()
        yield event
        if event.get("event") in _NESTING_TYPES:
            waiting += as_objects(event.get("events"))[::-1]


def _take_next(events: dict[str, deque[dict[str, Any]]], id_: str) -> dict[str, Any]:
    waiting = events.get(id_)
    return waiting.popleft() if waiting else {}


def _message_id(event: dict[str, Any]) -> str:
    choices = as_objects(as_object(event.get("output")).get("choices"))
    return as_id(as_object(choices[0].get("message")).get("id")) if choices else ""
