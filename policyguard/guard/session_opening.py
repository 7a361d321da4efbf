"""Opens sessions, new or resumed from their journals, parents first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from policyguard.evaluator.fold import start_session as start_session_state
from policyguard.guard import validate
from policyguard.guard.call_ids import parse_call_number
from policyguard.guard.clock import SteadyClock, continue_from
from policyguard.guard.event_loop import running_loop
from policyguard.guard.session import Session
from policyguard.model.errors import ClosedError
from policyguard.model.event import Admitted, Refused, SessionEnded, SessionStarted

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


class DeferredSession(Session):
    """A session that is opened when it is first used, and is a plain `Session` from then on."""

    __slots__ = ()
    _opening: partial[Session]

    def __init__(self, guard: Guard, id_: str, opening: partial[Session]) -> None:
        self.guard, self.id, self._opening = guard, id_, opening

    def __repr__(self) -> str:
        return f"<Session {self.id!r} not open yet>"

    @property
    def closed(self) -> bool:
        """See `Session.closed`. The session can be used, so it is not closed."""
        return False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Open the session: `_pipeline` and `_state` are not set before."""
            if name not in ("_pipeline", "_state"):
                raise AttributeError(f"`Session` has no attribute {name!r}")
            with self.guard._lock:
                if type(self) is DeferredSession:
                    opened = self._opening()
                    self._state, self._pipeline = opened._state, opened._pipeline
                    self.__class__ = Session
                    self.guard._open_sessions.add(self)
            return getattr(self, name)


def find_session(
    guard: Guard, started: SessionStarted, parent: Session | str | None, tags: dict[str, Any]
) -> Session:
    """Open a session, return the open one, or with a store, inside an event loop, a deferred one.

    A deferred one is always the same for one id. The event loop does not wait for the guard's
    lock, whose holder may wait for the store.
    """
    if guard.closed or not guard._may_block or running_loop() is None:
        return _open_session(guard, started, parent, tags)
    sessions = guard._open_sessions
    opened = sessions.get(started.session)
    if opened is not None:
        if opened.closed:
            return _open_session(guard, started, parent, tags)
        _check_opened(opened, started, parent)
        if guard._lock.acquire(blocking=False):  # else its next check does this
            try:
                guard._mark_used(started.session)
            finally:
                guard._lock.release()
        return opened
    with sessions.deferred_lock:
        found = sessions.deferred.get(started.session)
        if type(found) is DeferredSession:
            first: SessionStarted = found._opening.args[1]
            owner = {name: getattr(first, name) for name in _OWNER_FIELDS}
            _check_owner(started, owner, "", "")
            return found
        opening = partial(_open_session, guard, started, parent, tags)
        session = DeferredSession(guard, started.session, opening)
        sessions.deferred[started.session] = session
        return session


def _open_session(
    guard: Guard, started: SessionStarted, parent: Session | str | None, tags: dict[str, Any]
) -> Session:
    """Open a session for its owner, or return the open one of its id."""
    with guard._lock:
        opened = guard._open_sessions.get(started.session)
        if opened is not None:
            _check_opened(opened, started, parent)
            return guard._resume_session(opened) or opened
        parent_id = "" if guard.closed else _resolve_parent(guard, started.session, parent)
        checked = guard._evaluator.check_tags(tags)
        at, wall = _find_steady_clock(guard, parent_id).read()
        event = replace(started, at=at, wall=wall, parent=parent_id, tags=checked)
        return start_session(guard, event)


def _check_opened(opened: Session, started: SessionStarted, parent: Session | str | None) -> None:
    """Raise `ValueError` if an open session has another owner or parent."""
    state = opened._state
    name = parent.id if isinstance(parent, Session) else parent
    found = "" if state.parent is None else state.parent.id
    _check_owner(started, state.scope_keys, found, validate.identifier("parent", name))


def start_session(guard: Guard, event: SessionStarted, *, isolated: bool = False) -> Session:
    """Open the session that an event starts, or return the open one with its id.

    `isolated` is for replays of unrelated runs: the session then shares no agent, user or project
    that the event does not name.
    """
    with guard._lock:
        opened = guard._open_sessions.get(event.session)
        if opened is not None:
            return opened
        if guard.closed:
            raise ClosedError("the guard is closed: load another to open sessions")
        guard._open_sessions.lock(event.session)
        try:
            first_number = max(
                _replay_journal(guard, event.session),
                guard._open_sessions.last_number(event.session),
            )
            resumed = guard._state.evaluator_state.sessions.get(event.session)
            if resumed is not None:
                # Without a parent: it is gone, and the session goes on alone.
                found = event.parent if resumed.parent is None else resumed.parent.id
                _check_owner(event, resumed.scope_keys, found, event.parent)
            state = start_session_state(
                guard._evaluator, guard._state.evaluator_state, event, isolated=isolated
            )
            guard._open_sessions.make_room(None if isolated else state.parent)
            session = Session(guard, state, first_number)
            steady_clock = _find_steady_clock(
                guard, "" if state.parent is None else state.parent.id
            )
            if resumed is not None:
                steady_clock = continue_from(steady_clock, state.now)
            session._pipeline.steady_clock = steady_clock
            guard._open_sessions.add(session)
            guard._mark_used(event.session)
            if resumed is None:
                guard._events.emit(event)
        except BaseException:
            guard._state.forget(event.session)
            guard._open_sessions.remove(event.session)
            raise
        return session


def _find_steady_clock(guard: Guard, parent: str) -> SteadyClock:
    """Return the time of a session with this parent: parents may be ahead of their guard."""
    opened = guard._open_sessions.get(parent) if parent else None
    return guard._steady_clock if opened is None else opened._pipeline.steady_clock


_OWNER_FIELDS = ("user", "agent", "project")


def _check_owner(
    started: SessionStarted, owner: Mapping[str, str], parent: str, wanted_parent: str
) -> None:
    """Raise `ValueError` if a session is opened for another owner or parent than it has."""
    pairs = [(name, getattr(started, name), owner[name]) for name in _OWNER_FIELDS]
    for name, wanted, found in (*pairs, ("parent", wanted_parent, parent)):
        if wanted and wanted != found:
            shown = f"for {name} `{found}`" if found else f"without {name}"
            raise ValueError(
                f"session `{started.session}` was opened {shown}, not for `{wanted}`: use another "
                "id, or end that session first"
            )


def _resolve_parent(guard: Guard, session: str, parent: Session | str | None) -> str:
    """Return the id of a new session's parent, which is open then; empty for none.

    `ValueError` for one that cannot be its parent; and what opening a session raises.
    """
    if isinstance(parent, Session):
        if parent.guard is not guard:
            raise ValueError(f"`parent` is session `{parent.id}` of another guard")
        if parent.closed:
            raise ValueError(f"`parent` is session `{parent.id}`, which is closed")
        if not parent.id:
            raise ValueError("`parent` is a session with an empty id; open it with another")
        return parent.id
    parent_id = validate.identifier("parent", parent)
    if parent_id == session and parent_id:
        raise ValueError(f"`parent` is `{parent_id}`, which is the session itself")
    if not parent_id or guard._open_sessions.is_held(parent_id):
        return parent_id
    if not reopen_session(guard, parent_id):
        raise ValueError(
            f"`parent` is `{parent_id}`: no such session is open, and there is no journal to "
            "resume it from; open the parent first"
        )
    return parent_id


def _replay_journal(guard: Guard, session: str) -> int:
    """Rebuild a session from its journal, if it has one. Returns the number of its latest call.

    Calls that could not be written have numbers too. Raises `AlteredError` for a journal that was
    altered.
    """
    last_number = 0
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, (Admitted, Refused)):
            last_number = max(last_number + 1, parse_call_number(event.call))
        elif isinstance(event, SessionStarted):
            _resume_parent(guard, event)
        guard._state.rebuild(event)
    if last_number and guard._shared_budgets is not None:
        guard._shared_budgets.invalidate()
    return last_number


def _resume_parent(guard: Guard, started: SessionStarted) -> None:
    """Resume the parent of a session, unless an earlier life of the session began so."""
    parent = started.parent
    if (
        parent
        and not guard._open_sessions.is_held(parent)
        and started == _find_started(guard, started.session)
    ):
        reopen_session(guard, parent)


def reopen_session(guard: Guard, session: str) -> bool:
    """Resume a session from its journal. Returns whether it has one whose run is not over."""
    started = _find_started(guard, session)
    if started is not None:
        start_session(guard, started)
    return started is not None


def _find_started(guard: Guard, session: str) -> SessionStarted | None:
    """Return the start of a session's current life in its journal; None if there is none."""
    started: SessionStarted | None = None
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, SessionStarted):
            started = event
        elif isinstance(event, SessionEnded):
            started = None
    return started
