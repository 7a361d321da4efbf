"""OpenClaw telemetry: `telemetry.jsonl`, one event per line, all sessions of a gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.openclaw.session_reader import FIELDS, SessionReader, TelemetryEvent
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_number, as_object, as_objects, as_string
from policyguard.traces.parsing.timestamps import from_milliseconds

FORMAT = "openclaw"

_TOOL_TYPES = ("tool.start", "tool.end")
_READ_TYPES = (*_TOOL_TYPES, "agent.start", "agent.end", "llm.usage")
_CHANNEL_TYPES = ("message.in", "message.sending", "message.out")
"""Messages to and from a channel, which do not name their session."""

_OWNER_KEYS = ("sessionKey", "agentId", "channel")

_SPAWN_TOOL = "sessions_spawn"


def detect(sample: Sample) -> bool:
    """Return whether an event has a known type, number, time, and session, agent or channel."""
    return any(_is_typical(as_object(line)) for line in sample.records)


def _is_typical(line: dict[str, Any]) -> bool:
    known = as_string(line.get("type")) in (*_READ_TYPES, *_CHANNEL_TYPES)
    counted = as_number(line.get("seq")) is not None and as_number(line.get("ts")) is not None
    return known and counted and any(key in line for key in _OWNER_KEYS)


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """Yield the sessions of a file, interleaved as recorded, after its last line.

    Only the end of a run names the sub-agents that it spawned.
    """
    events: list[TelemetryEvent] = []
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
            fields = {key: event[key] for key in FIELDS if key in event}
            events.append(TelemetryEvent(number, event["type"], session, fields))
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
        self._sessions: dict[str, SessionReader] = {}

    def read_events(self, events: Sequence[TelemetryEvent]) -> Iterator[Item]:
        for event, next_type in zip(events, _next_types(events), strict=True):
            session = self._sessions.get(event.session)
            if session is None:
                started = Started(
                    session=event.session,
                    at=from_milliseconds(event.fields.get("ts")),
                    parent=self._find_parent(event.session),
                    agent=FORMAT,
                )
                session = self._sessions[event.session] = SessionReader(self._file, started)
                yield from session.builder.start()
            yield from session.read_event(event, next_type)
        for session in self._sessions.values():
            yield from session.builder.close(at=session.last_at)
        textless = sum(session.textless_results for session in self._sessions.values())
        if textless:
            reason = f"{textless} results without text: OpenClaw records none, so all are equal"
            yield Skipped(self._file, None, reason)

    def _find_parent(self, session: str) -> str:
        """Return the only session known to have spawned it; a copied history names it too."""
        known = self._parent_candidates.get(session, set()) - {session}
        return next(iter(known)) if len(known) == 1 else ""


def _next_types(events: Sequence[TelemetryEvent]) -> list[str]:
    """Return for each event the type of its session's next event; empty for the last."""
    next_types: list[str] = []
    latest: dict[str, str] = {}
    for event in reversed(events):
        next_types.append(latest.get(event.session, ""))
        latest[event.session] = event.type
    return next_types[::-1]
