"""One session of OpenClaw's telemetry: its events, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from policyguard.model.event import Completed, Started
from policyguard.traces.item import Item
from policyguard.traces.parsing.arguments import as_arguments
from policyguard.traces.parsing.json_shape import as_amount, as_string
from policyguard.traces.parsing.timestamps import from_milliseconds
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

_TOKEN_KEYS = ("inputTokens", "outputTokens", "cacheTokens", "cacheWriteTokens")

EVENT_KEYS = ("ts", "toolName", "params", "success", "error", "durationMs", "costUsd", *_TOKEN_KEYS)
"""What of an event is read here."""


class TelemetryEvent(msgspec.Struct, frozen=True):
    """One event: its line, its type, of which session it is, and what of it is `KEPT`."""

    line: int
    type: str
    session: str
    fields: dict[str, Any]


class SessionReader:
    """Follows the events of one session."""

    def __init__(self, file: str, started: Started) -> None:
        self.builder = SessionBuilder(file, started)
        self.last_at = started.at
        self.textless_results = 0
        self._batch = ""

    def read_event(self, event: TelemetryEvent, next_type: str) -> Iterator[Item]:
        """One event. Calls that start with nothing between them are one batch."""
        told = event.fields
        at = from_milliseconds(told.get("ts"))
        self.last_at = at or self.last_at
        match event.type:
            case "agent.start":
                # Some hooks tell a start twice; what the run before left open is over.
                yield from self.builder.abandon_open_calls()
                self.builder.add_prompt(at)
            case "tool.start":
                more = next_type == "tool.start"
                if more and not self._batch:
                    self._batch = self.builder.new_batch()
                yield from self.builder.add_call(_parse_call(told, at), self._batch)
                self._batch = self._batch if more else ""
            case "tool.end":
                for item in self.builder.add_result(_parse_result(told, at), event.line):
                    self.textless_results += isinstance(item, Completed) and not item.text
                    yield item
            case "llm.usage":
                tokens = sum(int(as_amount(told.get(key)) or 0) for key in _TOKEN_KEYS)
                cost = float(as_amount(told.get("costUsd")) or 0)
                yield from self.builder.add_reply(tokens, cost, at)
            case _:
                yield from self.builder.add_reply(at=at)


def _parse_call(told: dict[str, Any], at: int | None) -> ImportedCall:
    """A call. It has no id: its end is found by the tool's name."""
    tool = as_string(told.get("toolName"))
    return ImportedCall(id=tool, tool=tool, args=as_arguments(told.get("params")), at=at)


def _parse_result(told: dict[str, Any], at: int | None) -> ImportedResult:
    ok = told.get("success")
    known = isinstance(ok, bool)
    took = as_amount(told.get("durationMs"))
    error = as_string(told.get("error"))
    return ImportedResult(
        call=as_string(told.get("toolName")),
        text=error,
        ok=ok is True if known else None,
        provenance="explicit" if known else "unknown",
        at=at,
        error=error or None,
        duration=None if took is None else took / 1000,
    )
