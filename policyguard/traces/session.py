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


class Call(msgspec.Struct, frozen=True):
    """A call as its format has it. `id` may be empty, or used before in the session.

    `args` is None where nobody recorded them: they are not known.
    `server` is the MCP server whose tool it is, where the format says so.
    """

    id: str
    tool: str
    args: dict[str, Any] | None
    at: int | None = None
    server: str = ""


class Result(msgspec.Struct, frozen=True):
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
    pending: bool = False


class SessionEvents:
    """The events of one session, in the order in which its importer tells what happened."""

    def __init__(self, file: str, started: Started) -> None:
        self._file = file
        self._started = started
        self.session = started.session
        self._turns = 0
        self._prompted = False
        self._prompted_at: int | None = None
        self._calls = 0
        self._batches = 0
        self._renamed = 0
        self._ids: set[str] = set()
        self._open: dict[str, str] = {}
        self._waiting: dict[str, deque[str]] = {}

    def start(self) -> Iterator[Event]:
        """First of all."""
        yield self._started

    def prompt(self, at: int | None = None) -> None:
        """The person has spoken. The turn begins when the agent takes it up."""
        if not self._prompted:
            self._prompted, self._prompted_at = True, at

    def reply(self, tokens: int = 0, cost: float = 0.0, at: int | None = None) -> Iterator[Event]:
        """The model has spoken, and what that took."""
        if self._prompted:
            self._prompted = False
            self._turns += 1
            yield TurnStarted(self.session, self._prompted_at)
        if tokens or cost:
            yield Spent(self.session, at, tokens=tokens, cost=cost)

    def calls(self, calls: Sequence[Call]) -> Iterator[Event]:
        """All calls of one message, which comes after the results of all earlier ones."""
        if not calls:
            return
        yield from self.move_on()
        batch = self.batch() if len(calls) > 1 else ""
        for call in calls:
            yield from self.call(call, batch)

    def move_on(self) -> Iterator[Event]:
        """The agent goes on without the results of the calls that are still open."""
        for call in self._open:
            yield Completed(self.session, call=call, known="unknown")
        self._open.clear()
        self._waiting.clear()

    def batch(self) -> str:
        """A new name for the parallel calls of one message."""
        self._batches += 1
        return f"b{self._batches - 1}"

    def call(self, call: Call, batch: str) -> Iterator[Event]:
        """One call; those still open stay open."""
        if not self._turns:
            self.prompt(self._started.at)
        yield from self.reply()
        unique = self._unique(call.id)
        self._open[unique] = call.id
        self._waiting.setdefault(call.id, deque()).append(unique)
        yield Admitted(
            self.session,
            call.at,
            call=unique,
            tool=call.tool,
            args=call.args,
            server=call.server,
            batch=batch,
        )

    def result(self, result: Result, line: int | None = None) -> Iterator[Item]:
        """A result; Skipped (at `line`) where no open call waits for it."""
        call = self._answered(result.call)
        if call is None:
            yield Skipped(self._file, line, self._unasked(result.call))
            return
        yield Completed(
            self.session,
            result.at,
            call=call,
            ok=result.ok,
            known=result.known,
            text=result.text,
            error=result.error,
            exit_code=result.exit_code,
            duration=result.duration,
            state="pending" if result.pending else "",
        )

    @property
    def waits(self) -> bool:
        """Whether a call is open."""
        return bool(self._open)

    def close(self, success: bool | None = None, at: int | None = None) -> Iterator[Event]:
        """Last of all; calls still open stay so."""
        yield Closed(self.session, at, success=success)

    def _answered(self, asked: str) -> str | None:
        """The oldest open call of that id; without an id, the oldest of all."""
        if not asked and self._open:
            asked = next(iter(self._open.values()))
        waiting = self._waiting.get(asked)
        if not waiting:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._waiting[asked]
        del self._open[call]
        return call

    def _unasked(self, call: str) -> str:
        if not call:
            return f"session `{self.session}`: a result, and no call that waits for one"
        which = "a second or late result of call" if call in self._ids else "a result of no call"
        return f"session `{self.session}`: {which} `{call}`"

    def _unique(self, call: str) -> str:
        unique = call or f"c{self._calls}"
        self._calls += 1
        while unique in self._ids:
            self._renamed += 1
            unique = f"{call or 'c'}#{self._renamed}"
        self._ids.add(unique)
        return unique
