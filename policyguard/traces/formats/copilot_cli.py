"""GitHub Copilot CLI sessions: `events.jsonl`, one event per line, one session per file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_amount, as_id, as_object, as_objects, as_string
from policyguard.traces.parsing.measurements import from_iso
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "copilot-cli"

_KNOWN_TYPES = (
    "session.start",
    "tool.execution_start",
    "tool.execution_complete",
    "assistant.message",
)

_SHELL_SUFFIXES = ("bash", "powershell")
"""How the names of tools end whose results have an exit code: `bash`, `read_bash`."""

_EXIT_CODE = re.compile(r"<(?:command with \w+: \S+ )?exited with exit code (-?\d{1,10})>\s*\Z")


def detect(sample: Sample) -> bool:
    """Return whether an event has a known type and `data`."""
    lines = (as_object(line) for line in sample.records)
    return any(
        line.get("type") in _KNOWN_TYPES and isinstance(line.get("data"), dict) for line in lines
    )


def read(source: Source) -> Iterator[Item]:
    """Yield the session of a file."""
    session = _SessionReader(source)
    for entry in source.lines():
        if isinstance(entry, Skipped):
            yield entry
            continue
        number, line = entry
        if isinstance(line, dict) and isinstance(line.get("type"), str):
            yield from session.read_event(number, line)
        else:
            yield Skipped(source.file, number, "not an event: expected an object with a `type`")
    yield from session.finish()


class _SessionReader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._name = source.name.removesuffix(".jsonl")
        self._builder: SessionBuilder | None = None
        self._started_calls: list[ImportedCall] = []
        self._requested_calls: dict[str, ImportedCall] = {}
        self._tool_names: dict[str, str] = {}
        self._ended_at: int | None = None

    def read_event(self, number: int, line: dict[str, Any]) -> Iterator[Item]:
        """Yield the items that an event completes."""
        data = as_object(line.get("data"))
        at = from_iso(line.get("timestamp"))
        if self._builder is None:
            started = SessionStarted(
                session=self._name,
                agent=FORMAT,
                cwd=as_string(as_object(data.get("context")).get("cwd")),
            )
            self._builder = SessionBuilder(self._source.file, started)
        match line["type"]:
            case "session.shutdown":
                self._ended_at = at
            case "user.message" if as_text(data.get("content")).strip():
                self._builder.add_prompt(at)
            case "assistant.message":
                of_a_sub_agent = bool(data.get("parentToolCallId") or line.get("agentId"))
                yield from self._read_message(self._builder, data, at, of_a_sub_agent)
            case "tool.execution_start":
                self._start_call(self._parse_call(data, at))
            case "tool.execution_complete":
                name = as_id(data.get("toolCallId"))
                # Some versions record only the end of a call.
                if name in self._requested_calls:
                    self._start_call(self._requested_calls[name])
                yield from self._flush_calls(self._builder)
                result = _parse_result(data, at, self._tool_names.get(name, ""))
                yield from self._builder.add_result(result, number)

    def finish(self) -> Iterator[Item]:
        """Yield the last items, at the end of the file."""
        if self._builder is not None:
            yield from self._flush_calls(self._builder)
            yield from self._builder.close(at=self._ended_at)

    def _read_message(
        self, builder: SessionBuilder, data: dict[str, Any], at: int | None, is_sub_agent: bool
    ) -> Iterator[Item]:
        yield from self._flush_calls(builder)
        yield from builder.add_reply(int(as_amount(data.get("outputTokens")) or 0), at=at)
        requests = [_parse_request(call, at) for call in as_objects(data.get("toolRequests"))]
        new = [call for call in requests if call.id not in self._tool_names]
        # A sub-agent's messages come while the call that started it is open, and some messages
        # come after the start of the calls that they request.
        if new and len(new) == len(requests) and not is_sub_agent:
            yield from builder.abandon_open_calls()
            self._requested_calls.clear()
        self._requested_calls.update((call.id, call) for call in new)

    def _start_call(self, call: ImportedCall) -> None:
        self._requested_calls.pop(call.id, None)
        self._tool_names[call.id] = call.tool
        self._started_calls.append(call)

    def _parse_call(self, data: dict[str, Any], at: int | None) -> ImportedCall:
        name = as_id(data.get("toolCallId"))
        request = self._requested_calls.get(name)
        server = as_string(data.get("mcpServerName")) or (request.server if request else "")
        tool = as_string(data.get("toolName"))
        own_name = as_string(data.get("mcpToolName")) or _own_name(tool, server)
        return ImportedCall.parse(name, tool, data.get("arguments"), at, server, own_name)

    def _flush_calls(self, builder: SessionBuilder) -> Iterator[Item]:
        """Yield the calls that started with nothing between them, as one batch."""
        calls, self._started_calls = self._started_calls, []
        batch = builder.new_batch() if len(calls) > 1 else ""
        for call in calls:
            yield from builder.add_call(call, batch)


def _parse_request(request: dict[str, Any], at: int | None) -> ImportedCall:
    name, server = request.get("toolCallId"), as_string(request.get("mcpServerName"))
    tool = as_string(request.get("name"))
    own_name = as_string(request.get("mcpToolName")) or _own_name(tool, server)
    return ImportedCall.parse(name, tool, request.get("arguments"), at, server, own_name)


def _own_name(tool: str, server: str) -> str:
    """Return the name of a tool on its server; Copilot may put the server before it."""
    return tool.removeprefix(f"{server}-") if server else ""


def _parse_result(data: dict[str, Any], at: int | None, tool: str) -> ImportedResult:
    ok = data.get("success")
    error = data.get("error")
    message = as_string(as_object(error).get("message")) or as_text(error)
    content = data.get("result")
    if isinstance(content, dict):
        content = content.get("content", content)
    text = as_text(content) or message
    match = _EXIT_CODE.search(text) if tool.endswith(_SHELL_SUFFIXES) else None
    code = int(match[1]) if match else None
    is_known = isinstance(ok, bool) or code is not None
    return ImportedResult(
        call=as_id(data.get("toolCallId")),
        text=text,
        # Copilot's own success only means that the command ran.
        ok=ok is not False and not code if is_known else None,
        provenance="explicit" if is_known else "unknown",
        at=at,
        error=message or None,
        exit_code=code,
    )
