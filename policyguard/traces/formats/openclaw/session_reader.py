"""A session of OpenClaw's telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from policyguard.model.event import Completed, Started
from policyguard.traces.item import Item
from policyguard.traces.parsing.json_shape import as_amount, as_string
from policyguard.traces.parsing.timestamps import from_milliseconds
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_TOKEN_KEYS = ("inputTokens", "outputTokens", "cacheTokens", "cacheWriteTokens")

FIELDS = ("ts", "toolName", "params", "success", "error", "durationMs", "costUsd", *_TOKEN_KEYS)
"""The fields of an event that are read."""


class TelemetryEvent(msgspec.Struct, frozen=True):
    """An event with its line, type and session, and the fields in `FIELDS`."""

    line: int
    type: str
    session: str
    fields: dict[str, Any]


class SessionReader:
    """A reader for one session."""

    def __init__(self, file: str, started: Started) -> None:
        self.builder = SessionBuilder(file, started)
        self.last_at = started.at
        self.textless_results = 0
        self._batch = ""

    def read_event(self, event: TelemetryEvent, next_type: str) -> Iterator[Item]:
        """Yield the items of an event; calls that start with nothing between them are a batch."""
        fields = event.fields
        at = from_milliseconds(fields.get("ts"))
        self.last_at = at or self.last_at
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
    """Return a call, whose id is the tool's name: there are no ids."""
    tool = fields.get("toolName")
    return ImportedCall.parse(tool, tool, fields.get("params"), at)


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
