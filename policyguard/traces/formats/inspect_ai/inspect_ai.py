"""inspect_ai logs: `.eval`, a zip archive with one member per sample, or a JSON document.

The messages of a sample contain its calls, its events their times and the model's usage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.inspect_ai.attachments import Attachments
from policyguard.traces.formats.inspect_ai.sample_events import SampleEvents
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped, UnreadableError
from policyguard.traces.parsing import usage
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_id,
    as_list,
    as_object,
    as_objects,
    as_seconds,
    as_string,
)
from policyguard.traces.parsing.message_content import as_arguments, as_text
from policyguard.traces.parsing.timestamps import from_iso
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "inspect-ai"

_HEADER_MEMBERS = ("header.json", "_journal/start.json")
_SAMPLE_MEMBER = re.compile(r"samples/.+\.json")


def detect(sample: Sample) -> bool:
    """Return whether it is an archive with the header of a log, or a log as a document."""
    if sample.members:
        return any(name in _HEADER_MEMBERS for name in sample.members)
    document = as_object(sample.document)
    return isinstance(document.get("eval"), dict) and (
        isinstance(document.get("samples"), list) or isinstance(document.get("plan"), dict)
    )


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
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
        self._attachments = Attachments(as_object(sample.get("attachments")))
        events = as_objects(sample.get("events"))
        call_ids = [as_id(call.get("id")) for call in self._message_calls()]
        self._sample_events = SampleEvents(events, call_ids)
        self._has_replied = False
        first = events[0].get("timestamp") if events else None
        last = events[-1].get("timestamp") if events else None
        self._ended_at = from_iso(sample.get("completed_at")) or from_iso(last)
        started = from_iso(sample.get("started_at")) or from_iso(first)
        self._builder = SessionBuilder(source.file, Started(session=name, at=started))

    def items(self) -> Iterator[Item]:
        """Yield the session's events and its skipped parts."""
        yield from self._builder.start()
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
            yield from self._builder.add_reply(int(total or usage.count_tokens(counts)), at=at)
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
