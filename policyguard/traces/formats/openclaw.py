"""OpenClaw telemetry: `telemetry.jsonl`, one event per line, all sessions of a gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from policyguard.model.event import Completed, SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import (
    as_amount,
    as_number,
    as_object,
    as_objects,
    as_string,
)
from policyguard.traces.parsing.measurements import from_milliseconds
from policyguard.traces.parsing.message_content import as_arguments
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "openclaw"

_TOOL_TYPES = ("tool.start", "tool.end")
_READ_TYPES = (*_TOOL_TYPES, "agent.start", "agent.end", "llm.usage")
_CHANNEL_TYPES = ("message.in", "message.sending", "message.out")
"""Messages to and from a channel, which do not name their session."""

_OWNER_KEYS = ("sessionKey", "agentId", "channel")

_SPAWN_TOOL = "sessions_spawn"

_TOKEN_KEYS = ("inputTokens", "outputTokens", "cacheTokens", "cacheWriteTokens")

_FIELDS = ("ts", "toolName", "params", "success", "error", "durationMs", "costUsd", *_TOKEN_KEYS)
"""The fields of an event that are read."""


def detect(sample: Sample) -> bool:
    """Return whether an event has a known type, number, time, and session, agent or channel."""
    return any(_is_typical(as_object(line)) for line in sample.records)


def _is_typical(line: dict[str, Any]) -> bool:
    known = as_string(line.get("type")) in (*_READ_TYPES, *_CHANNEL_TYPES)
    counted = as_number(line.get("seq")) is not None and as_number(line.get("ts")) is not None
    return known and counted and any(key in line for key in _OWNER_KEYS)


def read(source: Source) -> Iterator[Item]:
    """Yield the sessions of a file, interleaved as recorded, after its last line.

    Only the end of a run names the sub-agents that it spawned.
    """
    events: list[_TelemetryEvent] = []
    parents: dict[str, set[str]] = {}
    for line in source.lines():
        if isinstance(line, Skipped):
            yield line
            continue
        number, value = line
        event = as_object(value)
        session = as_string(event.get("sessionKey")) or source.name
        for child in _spawned_sessions(event):
            parents.setdefault(child, set()).add(session)
        reason = _skip_reason(event)
        if reason:
            yield Skipped(source.file, number, reason)
        elif event["type"] in _READ_TYPES:
            fields = {key: event[key] for key in _FIELDS if key in event}
            events.append(_TelemetryEvent(number, event["type"], session, fields))
    yield from _LogReader(source.file, parents).read_events(events)


def _skip_reason(event: dict[str, Any]) -> str:
    """Return why a line is not a readable event; empty if it is one."""
    kind = as_string(event.get("type"))
    if not kind:
        return "not an event: expected an object with a `type`"
    if kind in _TOOL_TYPES and not as_string(event.get("toolName")):
        return f"a `{kind}` without a `toolName`"
    return ""


def _spawned_sessions(event: dict[str, Any]) -> Iterator[str]:
    """Yield the sessions that a run spawned, by the history in its last event."""
    for message in as_objects(event.get("messages")):
        if message.get("role") == "toolResult" and message.get("toolName") == _SPAWN_TOOL:
            yield as_string(as_object(message.get("details")).get("childSessionKey"))


class _LogReader:
    def __init__(self, file: str, parents: dict[str, set[str]]) -> None:
        self._file = file
        self._parent_candidates = parents
        self._sessions: dict[str, _SessionReader] = {}

    def read_events(self, events: Sequence[_TelemetryEvent]) -> Iterator[Item]:
        for event, next_type in zip(events, _next_types(events), strict=True):
            session = self._sessions.get(event.session)
            if session is None:
                started = SessionStarted(
                    session=event.session,
                    parent=self._find_parent(event.session),
                    agent=FORMAT,
                )
                session = self._sessions[event.session] = _SessionReader(self._file, started)
            yield from session.read_event(event, next_type)
        for session in self._sessions.values():
            yield from session.builder.close()
        textless = sum(session.textless_results for session in self._sessions.values())
        if textless:
            reason = f"{textless} results without text: OpenClaw records none, so all are equal"
            yield Skipped(self._file, None, reason)

    def _find_parent(self, session: str) -> str:
        """Return the only session known to have spawned it; a copied history names it too."""
        known = self._parent_candidates.get(session, set()) - {session}
        return next(iter(known)) if len(known) == 1 else ""


def _next_types(events: Sequence[_TelemetryEvent]) -> list[str]:
    """Return for each event the type of its session's next event; empty for the last."""
    next_types: list[str] = []
    latest: dict[str, str] = {}
    for event in reversed(events):
        next_types.append(latest.get(event.session, ""))
        latest[event.session] = event.type
    return next_types[::-1]


class _TelemetryEvent(msgspec.Struct, frozen=True):
    """An event with its line, type and session, and the fields in `_FIELDS`."""

    line: int
    type: str
    session: str
    fields: dict[str, Any]


class _SessionReader:
    """A reader for one session."""

    def __init__(self, file: str, started: SessionStarted) -> None:
        self.builder = SessionBuilder(file, started)
        self.textless_results = 0
        self._batch = ""

    def read_event(self, event: _TelemetryEvent, next_type: str) -> Iterator[Item]:
        """Yield the items of an event; calls that start with nothing between them are a batch."""
        fields = event.fields
        at = from_milliseconds(fields.get("ts"))
        match event.type:
            case "agent.start":
                # Some hooks record a start twice. Open calls of the previous run are over.
                yield from self.builder.abandon_open_calls()
                self.builder.add_prompt(at)
            case "tool.start":
                continues = next_type == "tool.start"
                if continues and not self._batch:
                    self._batch = self.builder.new_batch()
                yield from self.builder.add_call(_parse_call(fields, at), self._batch)
                self._batch = self._batch if continues else ""
            case "tool.end":
                for item in self.builder.add_result(_parse_result(fields, at), event.line):
                    self.textless_results += isinstance(item, Completed) and not item.text
                    yield item
            case "llm.usage":
                tokens = sum(int(as_amount(fields.get(key)) or 0) for key in _TOKEN_KEYS)
                cost = float(as_amount(fields.get("costUsd")) or 0)
                yield from self.builder.add_reply(tokens, cost, at)
            case _:
                yield from self.builder.add_reply(at=at)


def _parse_call(fields: dict[str, Any], at: int | None) -> ImportedCall:
    """Return a call, whose id is the tool's name: the format has no ids."""
    tool = as_string(fields.get("toolName"))
    args = as_arguments(fields.get("params"))
    return ImportedCall(tool, tool, args, at, has_host_id=False)


def _parse_result(fields: dict[str, Any], at: int | None) -> ImportedResult:
    ok = fields.get("success")
    is_known = isinstance(ok, bool)
    milliseconds = as_amount(fields.get("durationMs"))
    error = as_string(fields.get("error"))
    return ImportedResult(
        call=as_string(fields.get("toolName")),
        text=error,
        ok=ok is True if is_known else None,
        provenance="explicit" if is_known else "unknown",
        at=at,
        error=error or None,
        duration=None if milliseconds is None else milliseconds / 1000,
    )
