"""OpenClaw's telemetry: `telemetry.jsonl`, one event a line, all sessions of a gateway in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.openclaw.session_reader import (
    EVENT_KEYS,
    SessionReader,
    TelemetryEvent,
)
from policyguard.traces.importer import SeenIds
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_number, as_object, as_objects, as_string
from policyguard.traces.parsing.timestamps import from_milliseconds

FORMAT = "openclaw"

_TOOL_TYPES = ("tool.start", "tool.end")
_READ_TYPES = (*_TOOL_TYPES, "agent.start", "agent.end", "llm.usage")
_CHANNEL_TYPES = ("message.in", "message.sending", "message.out")
"""What goes to and from a channel: nothing says which session it belongs to."""

_OWNER_KEYS = ("sessionKey", "agentId", "channel")

_SPAWN_TOOL = "sessions_spawn"


def detect(sample: Sample) -> bool:
    """An event of a known type, counted and timed, of a session, an agent or a channel."""
    return any(_is_typical(as_object(line)) for line in sample.records)


def _is_typical(line: dict[str, Any]) -> bool:
    known = as_string(line.get("type")) in (*_READ_TYPES, *_CHANNEL_TYPES)
    counted = as_number(line.get("seq")) is not None and as_number(line.get("ts")) is not None
    return known and counted and any(key in line for key in _OWNER_KEYS)


def read(source: Source, seen_ids: SeenIds) -> Iterator[Item]:
    """The sessions of a file, mixed as they are in it.

    It is held until its end: only the end of a run tells which sub-agents it has spawned.
    """
    entries: list[TelemetryEvent] = []
    parents: dict[str, set[str]] = {}
    for line in source.lines():
        if isinstance(line, Skipped):
            yield line
            continue
        number, value = line
        told = as_object(value)
        session = as_string(told.get("sessionKey")) or source.name
        for child in _spawned_sessions(told):
            parents.setdefault(child, set()).add(session)
        reason = _skip_reason(told)
        if reason:
            yield Skipped(source.file, number, reason)
        elif told["type"] in _READ_TYPES:
            kept = {key: told[key] for key in EVENT_KEYS if key in told}
            entries.append(TelemetryEvent(number, told["type"], session, kept))
    yield from _LogReader(source.file, parents).read_events(entries)


def _skip_reason(told: dict[str, Any]) -> str:
    """Why a line is no event that can be read; empty where it is one."""
    kind = as_string(told.get("type"))
    if not kind:
        return "no event: an object with a `type`"
    if kind in _TOOL_TYPES and not as_string(told.get("toolName")):
        return f"a `{kind}` without a `toolName`"
    return ""


def _spawned_sessions(told: dict[str, Any]) -> Iterator[str]:
    """The sessions that OpenClaw said, in the history of a run, it had made for it."""
    for message in as_objects(told.get("messages")):
        if message.get("role") == "toolResult" and message.get("toolName") == _SPAWN_TOOL:
            yield as_string(as_object(message.get("details")).get("childSessionKey"))


class _LogReader:
    """Follows the events of one file."""

    def __init__(self, file: str, parents: dict[str, set[str]]) -> None:
        self._file = file
        self._parent_candidates = parents
        self._sessions: dict[str, SessionReader] = {}

    def read_events(self, entries: Sequence[TelemetryEvent]) -> Iterator[Item]:
        """All of the file."""
        for entry, followed_by in zip(entries, _next_types(entries), strict=True):
            session = self._sessions.get(entry.session)
            if session is None:
                started = Started(
                    session=entry.session,
                    at=from_milliseconds(entry.fields.get("ts")),
                    parent=self._find_parent(entry.session),
                    agent=FORMAT,
                )
                session = self._sessions[entry.session] = SessionReader(self._file, started)
                yield from session.builder.start()
            yield from session.read_event(entry, followed_by)
        for session in self._sessions.values():
            yield from session.builder.close(at=session.last_at)
        textless = sum(session.textless_results for session in self._sessions.values())
        if textless:
            reason = f"{textless} results without a text: none is recorded, so all look alike"
            yield Skipped(self._file, None, reason)

    def _find_parent(self, session: str) -> str:
        """The one session that is known to have spawned it: a copied history names it too."""
        known = self._parent_candidates.get(session, set()) - {session}
        return next(iter(known)) if len(known) == 1 else ""


def _next_types(entries: Sequence[TelemetryEvent]) -> list[str]:
    """For each event the type of the next one of its session; empty for the last."""
    following: list[str] = []
    latest: dict[str, str] = {}
    for entry in reversed(entries):
        following.append(latest.get(entry.session, ""))
        latest[entry.session] = entry.type
    return following[::-1]
