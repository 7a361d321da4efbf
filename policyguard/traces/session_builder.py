"""Conversion of one recorded session into events that keep the rules of the event model.

A turn comes before the first call, call ids are unique in the session, the parallel calls of a
message are one batch, and each call has at most one `Completed`. Where a format records results
that are late or lost, a call also has one once the agent has moved on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Provenance,
    SessionEnded,
    SessionStarted,
    Spent,
    TurnStarted,
)
from policyguard.model.tool_name import parse_tool_name
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_id, as_string
from policyguard.traces.parsing.message_content import as_arguments


class ImportedCall(msgspec.Struct, frozen=True):
    """A call as recorded. `id` may be empty or repeat an earlier id of the session.

    `args` is None if the arguments were not recorded. `server` is the tool's MCP server, and
    `own_name` its name there, if known. `has_host_id`: the host gave the call its `id`.
    """

    id: str
    tool: str
    args: dict[str, Any] | None
    at: int | None = None
    server: str = ""
    own_name: str = ""
    has_host_id: bool = True

    @classmethod
    def parse(
        cls,
        id_: object,
        tool: object,
        args: object,
        at: int | None = None,
        server: object = "",
        own_name: object = "",
    ) -> ImportedCall:
        """Return a call with the values of untrusted fields."""
        return cls(
            as_id(id_),
            as_string(tool),
            as_arguments(args),
            at,
            as_string(server),
            as_string(own_name),
        )


class ImportedResult(msgspec.Struct, frozen=True):
    """A result as recorded. An empty `call` answers the oldest open call.

    A pending result has neither succeeded nor failed: its command is still running. Of a cancelled
    call, which was stopped from outside, `ok` is None.
    """

    call: str
    text: str
    ok: bool | None = None
    provenance: Provenance = "unknown"
    at: int | None = None
    error: str | None = None
    exit_code: int | None = None
    duration: float | None = None
    state: Literal["", "pending", "cancelled"] = ""


class SessionBuilder:
    """A builder for the events of one session; to be called in recorded order.

    The session begins with its first message or call and ends with its last message, call or
    result; a header, and what the host did before and after, do not count. `started.at` is the
    begin where messages have no times of their own.
    """

    def __init__(self, file: str, started: SessionStarted) -> None:
        self._file = file
        self._started = started
        self._has_started = False
        self._first_at = self._last_at = started.at
        self.session = started.session
        self._turn_count = 0
        self._has_prompt = False
        self._prompted_at: int | None = None
        self._call_count = 0
        self._batch_count = 0
        self._rename_count = 0
        self._used_ids: set[str] = set()
        self._open_calls: dict[str, str] = {}
        self._open_by_id: dict[str, deque[str]] = {}

    def note_time(self, at: int | None) -> None:
        """Note when there was a message, a call or a result."""
        if at is not None:
            if self._first_at is None:
                self._first_at = at
            if self._last_at is None or at > self._last_at:
                self._last_at = at

    def start(self) -> Iterator[Event]:
        """Yield the first event, once."""
        if not self._has_started:
            self._has_started = True
            yield replace(self._started, at=self._first_at)

    def add_prompt(self, at: int | None = None) -> None:
        """Note a user message; the turn begins when the agent replies."""
        self.note_time(at)
        if not self._has_prompt:
            self._has_prompt, self._prompted_at = True, at

    def add_reply(
        self, tokens: int = 0, cost: float = 0.0, at: int | None = None
    ) -> Iterator[Event]:
        """Yield the turn that a reply of the model begins, and its usage."""
        self.note_time(at)
        yield from self.start()
        if self._has_prompt:
            self._has_prompt = False
            self._turn_count += 1
            if self._turn_count == 1 and self._prompted_at is None:
                self._prompted_at = self._first_at
            yield TurnStarted(self.session, self._prompted_at)
        if tokens or cost:
            yield Spent(self.session, at, tokens=tokens, cost=cost)

    def cancel_open_calls(self, at: int | None) -> Iterator[Event]:
        """Complete the open calls as cancelled: the user stopped the agent."""
        for call in self._open_calls:
            yield Completed(self.session, at, call=call, state="cancelled")
        self.drop_open_calls()

    def drop_open_calls(self) -> None:
        """Wait no longer for results of the open calls: they were never reported."""
        self._open_calls.clear()
        self._open_by_id.clear()

    def add_calls(self, calls: Sequence[ImportedCall]) -> Iterator[Event]:
        """Yield all calls of one message, after completing the calls that are still open."""
        if not calls:
            return
        yield from self.abandon_open_calls()
        batch = self.new_batch() if len(calls) > 1 else ""
        for call in calls:
            yield from self.add_call(call, batch)

    def abandon_open_calls(self) -> Iterator[Event]:
        """Complete the open calls without a result: the agent has moved on."""
        for call in self._open_calls:
            yield Completed(self.session, call=call, provenance="unknown")
        self.drop_open_calls()

    def new_batch(self) -> str:
        """Return a new name for the parallel calls of one message."""
        self._batch_count += 1
        return f"b{self._batch_count - 1}"

    def add_call(self, call: ImportedCall, batch: str) -> Iterator[Event]:
        """Yield one call; open calls stay open."""
        self.note_time(call.at)
        if not self._turn_count:
            self.add_prompt(self._first_at)
        yield from self.add_reply()
        unique = self._unique_id(call.id)
        self._open_calls[unique] = call.id
        self._open_by_id.setdefault(call.id, deque()).append(unique)
        tool, server, host_tool = parse_tool_name(call.tool, call.server, call.own_name)
        yield Admitted(
            self.session,
            call.at,
            call=unique,
            tool=tool,
            args=call.args,
            server=server,
            batch=batch,
            host_call=call.id if call.has_host_id else "",
            host_tool=host_tool,
        )

    def add_result(self, result: ImportedResult, line: int | None = None) -> Iterator[Item]:
        """Yield a result, or `Skipped` (at `line`) if no open call waits for it."""
        call = self._take_open_call(result.call)
        self.note_time(result.at)
        if call is None:
            yield Skipped(self._file, line, self._unmatched_reason(result.call))
            return
        yield Completed(
            self.session,
            result.at,
            call=call,
            ok=result.ok,
            provenance=result.provenance,
            text=result.text,
            error=result.error,
            exit_code=result.exit_code,
            duration=result.duration,
            state=result.state,
        )

    @property
    def has_open_calls(self) -> bool:
        """Return whether a call waits for its result."""
        return bool(self._open_calls)

    def close(self, success: bool | None = None, at: int | None = None) -> Iterator[Event]:
        """Yield the last event; open calls stay open. `at` is the recording's own end mark."""
        self.note_time(at)
        yield from self.start()
        yield SessionEnded(self.session, self._last_at, success=success)

    def _take_open_call(self, original_id: str) -> str | None:
        """Return the oldest open call with that id; without an id, the oldest of all."""
        if not original_id and self._open_calls:
            original_id = next(iter(self._open_calls.values()))
        waiting = self._open_by_id.get(original_id)
        if not waiting:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._open_by_id[original_id]
        del self._open_calls[call]
        return call

    def _unmatched_reason(self, call: str) -> str:
        if not call:
            return f"session `{self.session}`: a result without an open call"
        kind = "a second or late result for" if call in self._used_ids else "a result for unknown"
        return f"session `{self.session}`: {kind} call `{call}`"

    def _unique_id(self, call: str) -> str:
        unique = call or f"c{self._call_count}"
        self._call_count += 1
        while unique in self._used_ids:
            self._rename_count += 1
            unique = f"{call or 'c'}#{self._rename_count}"
        self._used_ids.add(unique)
        return unique
