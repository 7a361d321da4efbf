"""GitHub Copilot CLI sessions: `events.jsonl`, one event a line, one session a file."""

from __future__ import annotations

import re
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

_SHELLS = ("bash", "powershell")
"""How the names of the tools end that tell how a command ended: `bash`, `read_bash`."""

_EXITED = re.compile(r"<(?:command with \w+: \S+ )?exited with exit code (-?\d{1,10})>\s*\Z")


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
        self._requests: dict[str, Call] = {}
        self._tools: dict[str, str] = {}
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
                of_a_sub_agent = bool(data.get("parentToolCallId") or line.get("agentId"))
                yield from self._message(self._events, data, at, of_a_sub_agent)
            case "tool.execution_start":
                self._start(self._call(data, at))
            case "tool.execution_complete":
                name = as_id(data.get("toolCallId"))
                # Some versions tell the end of a call alone.
                if name in self._requests:
                    self._start(self._requests[name])
                yield from self._tell(self._events)
                result = _result(data, at, self._tools.get(name, ""))
                yield from self._events.result(result, number)

    def end(self) -> Iterator[Item]:
        """The end of the file."""
        if self._events is not None:
            yield from self._tell(self._events)
            yield from self._events.close(at=self._at)

    def _message(
        self, events: SessionEvents, data: dict[str, Any], at: int | None, of_a_sub_agent: bool
    ) -> Iterator[Item]:
        yield from self._tell(events)
        yield from events.reply(int(as_amount(data.get("outputTokens")) or 0), at=at)
        requests = [_request(told, at) for told in as_objects(data.get("toolRequests"))]
        fresh = [call for call in requests if call.id not in self._tools]
        # A sub-agent's messages come while the call that it works for is open, and some messages
        # behind the start of what they ask for.
        if fresh and len(fresh) == len(requests) and not of_a_sub_agent:
            yield from events.move_on()
            self._requests.clear()
        self._requests.update((call.id, call) for call in fresh)

    def _start(self, call: Call) -> None:
        self._requests.pop(call.id, None)
        self._tools[call.id] = call.tool
        self._asked.append(call)

    def _call(self, data: dict[str, Any], at: int | None) -> Call:
        name = as_id(data.get("toolCallId"))
        asked = self._requests.get(name)
        return Call(
            id=name,
            tool=as_string(data.get("toolName")),
            args=as_arguments(data.get("arguments")),
            at=at,
            server=as_string(data.get("mcpServerName")) or (asked.server if asked else ""),
        )

    def _tell(self, events: SessionEvents) -> Iterator[Item]:
        """The calls that were started together, before anything else happened."""
        asked, self._asked = self._asked, []
        batch = events.batch() if len(asked) > 1 else ""
        for call in asked:
            yield from events.call(call, batch)


def _request(told: dict[str, Any], at: int | None) -> Call:
    return Call(
        id=as_id(told.get("toolCallId")),
        tool=as_string(told.get("name")),
        args=as_arguments(told.get("arguments")),
        at=at,
        server=as_string(told.get("mcpServerName")),
    )


def _result(data: dict[str, Any], at: int | None, tool: str) -> Result:
    ok = data.get("success")
    error = data.get("error")
    said = as_string(as_object(error).get("message")) or as_text(error)
    content = data.get("result")
    if isinstance(content, dict):
        content = content.get("content", content)
    text = as_text(content) or said
    exited = _EXITED.search(text) if tool.endswith(_SHELLS) else None
    code = int(exited[1]) if exited else None
    told = isinstance(ok, bool) or code is not None
    return Result(
        call=as_id(data.get("toolCallId")),
        text=text,
        # Copilot's own success is that the command was run, however it ended.
        ok=ok is not False and not code if told else None,
        known="explicit" if told else "unknown",
        at=at,
        error=said or None,
        exit_code=code,
    )
