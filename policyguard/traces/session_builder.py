"""One recorded session → events that keep the rules of the event model.

Importers say what their format says; what every session must keep is kept here: a turn before
the first call, call ids unique in the session, one batch for the parallel calls of a message, a
`Completed` for each call that the agent has moved on from, and at most one for any call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from policyguard.model.event import (
    Admitted,
    Closed,
    Completed,
    Event,
    Provenance,
    Spent,
    Started,
    TurnStarted,
)
from policyguard.traces.item import Item, Skipped


class ImportedCall(msgspec.Struct, frozen=True):
    """A call as its format has it. `id` may be empty, or used before in the session.

    `args` is None where nobody recorded them: they are not known.
    `server` is the MCP server whose tool it is, where the format says so.
    """

    id: str
    tool: str
    args: dict[str, Any] | None
    at: int | None = None
    server: str = ""


class ImportedResult(msgspec.Struct, frozen=True):
    """A result as its format has it. An empty `call` answers the oldest open call.

    What is `pending` has neither succeeded nor failed: its command runs on.
    """

    call: str
    text: str
    ok: bool | None = None
    known: Provenance = "unknown"
    at: int | None = None
    error: str | None = None
    exit_code: int | None = None
    duration: float | None = None
    is_pending: bool = False


class SessionBuilder:
    """The events of one session, in the order in which its importer tells what happened."""

    def __init__(self, file: str, started: Started) -> None:
        self._file = file
        self._started = started
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

    def start(self) -> Iterator[Event]:
        """First of all."""
        yield self._started

    def add_prompt(self, at: int | None = None) -> None:
        """The person has spoken. The turn begins when the agent takes it up."""
        if not self._has_prompt:
            self._has_prompt, self._prompted_at = True, at

    def add_reply(
        self, tokens: int = 0, cost: float = 0.0, at: int | None = None
    ) -> Iterator[Event]:
        """The model has spoken, and what that took."""
        if self._has_prompt:
            self._has_prompt = False
            self._turn_count += 1
            yield TurnStarted(self.session, self._prompted_at)
        if tokens or cost:
            yield Spent(self.session, at, tokens=tokens, cost=cost)

    def add_calls(self, calls: Sequence[ImportedCall]) -> Iterator[Event]:
        """All calls of one message, which comes after the results of all earlier ones."""
        if not calls:
            return
        yield from self.abandon_open_calls()
        batch = self.new_batch() if len(calls) > 1 else ""
        for call in calls:
            yield from self.add_call(call, batch)

    def abandon_open_calls(self) -> Iterator[Event]:
        """The agent goes on without the results of the calls that are still open."""
        for call in self._open_calls:
            yield Completed(self.session, call=call, provenance="unknown")
        self._open_calls.clear()
        self._open_by_id.clear()

    def new_batch(self) -> str:
        """A new name for the parallel calls of one message."""
        self._batch_count += 1
        return f"b{self._batch_count - 1}"

    def add_call(self, call: ImportedCall, batch: str) -> Iterator[Event]:
        """One call; those still open stay open."""
        if not self._turn_count:
            self.add_prompt(self._started.at)
        yield from self.add_reply()
        unique = self._unique_id(call.id)
        self._open_calls[unique] = call.id
        self._open_by_id.setdefault(call.id, deque()).append(unique)
        yield Admitted(
            self.session,
            call.at,
            call=unique,
            tool=call.tool,
            args=call.args,
            server=call.server,
            batch=batch,
        )

    def add_result(self, result: ImportedResult, line: int | None = None) -> Iterator[Item]:
        """A result; Skipped (at `line`) where no open call waits for it."""
        call = self._take_open_call(result.call)
        if call is None:
            yield Skipped(self._file, line, self._unmatched_reason(result.call))
            return
        yield Completed(
            self.session,
            result.at,
            call=call,
            ok=result.ok,
            provenance=result.known,
            text=result.text,
            error=result.error,
            exit_code=result.exit_code,
            duration=result.duration,
            state="pending" if result.is_pending else "",
        )

    @property
    def has_open_calls(self) -> bool:
        """Whether a call is open."""
        return bool(self._open_calls)

    def close(self, success: bool | None = None, at: int | None = None) -> Iterator[Event]:
        """Last of all; calls still open stay so."""
        yield Closed(self.session, at, success=success)

    def _take_open_call(self, original_id: str) -> str | None:
        """The oldest open call of that id; without an id, the oldest of all."""
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
            return f"session `{self.session}`: a result, and no call that waits for one"
        which = (
            "a second or late result of call" if call in self._used_ids else "a result of no call"
        )
        return f"session `{self.session}`: {which} `{call}`"

    def _unique_id(self, call: str) -> str:
        unique = call or f"c{self._call_count}"
        self._call_count += 1
        while unique in self._used_ids:
            self._rename_count += 1
            unique = f"{call or 'c'}#{self._rename_count}"
        self._used_ids.add(unique)
        return unique
