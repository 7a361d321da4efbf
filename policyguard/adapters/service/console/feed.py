"""What happened in the sessions of a guard, as the console shows it.

Events come from the guard as they happen, and from the journals of sessions that were open before
the console was. An event that is seen twice counts once.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from policyguard.model.event import (
    Admitted,
    Approved,
    Completed,
    Denied,
    Event,
    Refused,
    Released,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)

MAX_SESSIONS = 500
"""The sessions that are kept; the one without an event for the longest time goes first."""
MAX_CALLS = 20_000
"""The calls that are kept of a session, the latest."""
MAX_RECENT = 200
"""The calls of a session that keep their arguments."""
Listener = Callable[[str, bool], None]
"""Takes the session of an event, and whether it may change which calls wait."""

_ASKING = (Approved, Denied, SessionStarted, SessionEnded, TurnStarted)
_ARGS_CHARS = 240
_TEXT_CHARS = 300


class ShownCall(msgspec.Struct):
    """A call of a timeline. `number` counts from 1; `state` is how it ended, empty while it runs.

    `entries` are those that fired, `text` says why in one sentence, `args` are redacted JSON.
    """

    number: int
    id: str
    host_call: str
    tool: str
    at: int | None
    effect: str
    fingerprint: str
    args: str | None
    entries: tuple[str, ...]
    text: str = ""
    state: str = ""
    result: str = ""

    @property
    def refused(self) -> bool:
        """Whether it was refused."""
        return self.effect in ("ask", "block", "halt")


class RecentCall(NamedTuple):
    """A call with its arguments as they were, on which a grant is tried before it is given."""

    id: str
    tool: str
    server: str
    args: dict[str, Any]


def _new_recent() -> deque[RecentCall]:
    return deque(maxlen=MAX_RECENT)


class ShownSession(msgspec.Struct):
    """A session: who runs it, and its calls by id, the latest last."""

    id: str
    agent: str = ""
    user: str = ""
    project: str = ""
    parent: str = ""
    started_at: int | None = None
    latest_at: int | None = None
    turn: int = 0
    call_count: int = 0
    refused_count: int = 0
    failed_count: int = 0
    ended: bool = False
    calls: OrderedDict[str, ShownCall] = msgspec.field(default_factory=OrderedDict)
    recent: deque[RecentCall] = msgspec.field(default_factory=_new_recent)

    @property
    def latest_refused(self) -> ShownCall | None:
        """The latest call that was refused."""
        return next((one for one in reversed(self.calls.values()) if one.refused), None)


class Hits(msgspec.Struct):
    """How often an entry fired, by effect; `latest_at` is nanoseconds."""

    by_effect: Counter[str] = msgspec.field(default_factory=Counter)
    latest_at: int | None = None


class Answers(msgspec.Struct):
    """How often calls of a tool were asked about by an entry, and what was answered."""

    asked: int = 0
    approved: int = 0
    denied: int = 0


class ConsoleFeed:
    """Sessions with their timelines, hits of entries, and answers. Safe for threads."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.redact = redact
        self._lock = threading.Lock()
        self.sessions: OrderedDict[str, ShownSession] = OrderedDict()
        self.hits: dict[str, Hits] = {}
        self.answers: dict[tuple[str, str], Answers] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for each event, in any thread; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def load(self, session: str, events: Iterable[Event]) -> None:
        """Add the events of a session's journal, which may go on meanwhile."""
        for event in events:
            with self._lock:
                self._apply(event)
        for listener in [*self._listeners]:
            listener(session, True)

    def note(self, event: Event) -> None:
        """Add an event that happens now."""
        with self._lock:
            self._apply(event)
        may_ask = isinstance(event, _ASKING) or (
            isinstance(event, Refused) and event.effect == "ask"
        )
        for listener in [*self._listeners]:
            listener(event.session, may_ask)

    def note_reason(self, session: str, call: str, text: str) -> None:
        """Add why an entry fired on a call, which the call's event does not say."""
        with self._lock:
            found = self.sessions.get(session)
            shown = None if found is None else found.calls.get(call)
            if shown is not None:
                shown.text = text[:_TEXT_CHARS]

    def snapshot(self) -> list[ShownSession]:
        """Return the sessions, the latest first."""
        with self._lock:
            return [*reversed(self.sessions.values())]

    def calls_of(self, session: str) -> list[ShownCall]:
        """Return the calls of a session, the earliest first."""
        with self._lock:
            found = self.sessions.get(session)
            return [] if found is None else [*found.calls.values()]

    def _apply(self, event: Event) -> None:
        session = self.sessions.get(event.session)
        if session is None:
            session = self.sessions[event.session] = ShownSession(event.session)
            if len(self.sessions) > MAX_SESSIONS:
                self.sessions.popitem(last=False)
        self.sessions.move_to_end(event.session)
        at = event.at if event.wall is None else event.wall
        if at is not None:
            session.latest_at = max(at, session.latest_at or 0)
        match event:
            case SessionStarted():
                session.agent, session.user = event.agent, event.user
                session.project, session.parent = event.project, event.parent
                session.started_at, session.ended = at, False
            case TurnStarted():
                session.turn += 1
            case Admitted() | Refused():
                self._add_call(session, event, at)
            case Completed():
                _end_call(session, event, self.redact)
            case Released():
                call = session.calls.get(event.call)
                if call is not None:
                    call.state = "did not run"
            case Approved() | Denied():
                self._add_answer(session, event)
            case SessionEnded():
                session.ended = True
            case _:
                pass

    def _add_call(self, session: ShownSession, event: Admitted | Refused, at: int | None) -> None:
        if event.call in session.calls:
            return
        session.call_count += 1
        fingerprint = event.exact_fingerprint or event.fingerprint
        call = ShownCall(
            number=session.call_count,
            id=event.call,
            host_call=event.host_call,
            tool=event.shown_tool,
            at=at,
            effect=event.effect,
            fingerprint=fingerprint,
            args=None if event.args is None else _shorten(event.args, self.redact),
            entries=event.violations,
        )
        session.calls[event.call] = call
        session.refused_count += call.refused
        if event.args is not None:
            tool, server, _ = event.tool_name
            session.recent.append(RecentCall(call.id, tool, server, event.args))
        if len(session.calls) > MAX_CALLS:
            session.calls.popitem(last=False)
        for entry in event.violations:
            hits = self.hits.setdefault(entry, Hits())
            hits.by_effect[event.effect] += 1
            hits.latest_at = at
            if event.effect == "ask":
                self.answers.setdefault((call.tool, entry), Answers()).asked += 1

    def _add_answer(self, session: ShownSession, event: Approved | Denied) -> None:
        call = session.calls.get(event.call)
        if call is None or call.state not in ("", "approved"):
            return
        call.state = "approved" if isinstance(event, Approved) else "denied"
        call.result = f"{call.result}, {event.by}" if call.result else f"by {event.by}"
        for entry in call.entries:
            answers = self.answers.setdefault((call.tool, entry), Answers())
            if isinstance(event, Approved):
                answers.approved += 1
            else:
                answers.denied += 1


def _end_call(session: ShownSession, event: Completed, redact: Callable[[str], str]) -> None:
    call = session.calls.get(event.call)
    if call is None or call.state:
        return
    call.state = event.state or ("failed" if event.ok is False else "ok")
    session.failed_count += call.state == "failed"
    text = event.error if event.error is not None else event.text
    call.result = redact(text[: 16 * _TEXT_CHARS])[:_TEXT_CHARS]


def _shorten(args: dict[str, Any], redact: Callable[[str], str]) -> str:
    text = msgspec.json.encode(args).decode("utf-8", "replace")
    return redact(text[: 16 * _ARGS_CHARS])[:_ARGS_CHARS]
