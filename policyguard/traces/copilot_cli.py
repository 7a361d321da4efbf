"""GitHub Copilot CLI sessions: `events.jsonl`, one event a line, one session a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import Started
from policyguard.traces.arguments import as_arguments
from policyguard.traces.content import as_text
from policyguard.traces.importer import Met
from policyguard.traces.item import Item, Skipped
from policyguard.traces.session import Call, Result, SessionEvents
from policyguard.traces.shape import as_amount, as_id, as_object, as_objects, as_string
from policyguard.traces.source import Sample, Source
from policyguard.traces.times import from_iso

FORMAT = "copilot-cli"

_TYPICAL = ("session.start", "tool.execution_start", "tool.execution_complete", "assistant.message")


def detect(sample: Sample) -> bool:
    """An event of a known type, with `data`."""
    lines = (as_object(line) for line in sample.records)
    return any(
        line.get("type") in _TYPICAL and isinstance(line.get("data"), dict) for line in lines
    )


def read(source: Source, met: Met) -> Iterator[Item]:
    """The one session of a file."""
    session = _Session(source)
    for entry in source.lines():
        if isinstance(entry, Skipped):
            yield entry
            continue
        number, line = entry
        if isinstance(line, dict) and isinstance(line.get("type"), str):
            yield from session.event(number, line)
        else:
            yield Skipped(source.file, number, "no event: an object with a `type`")
    yield from session.end()


class _Session:
    """Follows the events of one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._name = source.name.removesuffix(".jsonl")
        self._events: SessionEvents | None = None
        self._asked: list[Call] = []
        self._servers: dict[str, str] = {}
        self._at: int | None = None

    def event(self, number: int, line: dict[str, Any]) -> Iterator[Item]:
        """One line of the file."""
        data = as_object(line.get("data"))
        at = from_iso(line.get("timestamp"))
        self._at = at or self._at
        if self._events is None:
            started = Started(
                session=self._name,
                at=from_iso(data.get("startTime")) or at,
                agent=FORMAT,
                cwd=as_string(as_object(data.get("context")).get("cwd")),
            )
            self._events = SessionEvents(self._source.file, started)
            yield from self._events.start()
        match line["type"]:
            case "user.message" if as_text(data.get("content")).strip():
                self._events.prompt(at)
            case "assistant.message":
                yield from self._message(self._events, data, at)
            case "tool.execution_start":
                self._asked.append(self._call(data, at))
            case "tool.execution_complete":
                yield from self._tell(self._events)
                yield from self._events.result(_result(data, at), number)

    def end(self) -> Iterator[Item]:
        """The end of the file."""
        if self._events is not None:
            yield from self._tell(self._events)
            yield from self._events.close(at=self._at)

    def _message(
        self, events: SessionEvents, data: dict[str, Any], at: int | None
    ) -> Iterator[Item]:
        yield from self._tell(events)
        yield from events.reply(int(as_amount(data.get("outputTokens")) or 0), at=at)
        requests = as_objects(data.get("toolRequests"))
        # A sub-agent's messages come while the call that it works for is open.
        if requests and not data.get("parentToolCallId"):
            yield from events.move_on()
            self._servers.clear()
        for request in requests:
            server = as_string(request.get("mcpServerName"))
            self._servers[as_id(request.get("toolCallId"))] = server

    def _call(self, data: dict[str, Any], at: int | None) -> Call:
        name = as_id(data.get("toolCallId"))
        return Call(
            id=name,
            tool=as_string(data.get("toolName")),
            args=as_arguments(data.get("arguments")),
            at=at,
            server=as_string(data.get("mcpServerName")) or self._servers.get(name, ""),
        )

    def _tell(self, events: SessionEvents) -> Iterator[Item]:
        """The calls that were started together, before anything else happened."""
        asked, self._asked = self._asked, []
        batch = events.batch() if len(asked) > 1 else ""
        for call in asked:
            yield from events.call(call, batch)


def _result(data: dict[str, Any], at: int | None) -> Result:
    ok = data.get("success")
    told = isinstance(ok, bool)
    error = data.get("error")
    said = as_string(as_object(error).get("message")) or as_text(error)
    content = data.get("result")
    if isinstance(content, dict):
        content = content.get("content", content)
    return Result(
        call=as_id(data.get("toolCallId")),
        text=as_text(content) or said,
        ok=ok is True if told else None,
        known="explicit" if told else "unknown",
        at=at,
        error=said or None,
    )
