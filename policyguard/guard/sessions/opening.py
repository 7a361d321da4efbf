"""Opens sessions, new or resumed from their journals, parents first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from policyguard.evaluator.fold import start_session as start_session_state
from policyguard.evaluator.session_state import SessionState
from policyguard.guard import validate
from policyguard.guard.calls.ids import parse_call_number
from policyguard.guard.calls.pending_advice import PendingAdvice, RebuiltAdvice
from policyguard.guard.clock import SteadyClock, continue_from
from policyguard.guard.event_loop import running_loop
from policyguard.guard.session import Session
from policyguard.model.errors import ClosedError
from policyguard.model.event import Admitted, Event, Refused, SessionEnded, SessionStarted

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard
    from policyguard.guard.sessions.lifetime import SessionLifetime

_BATCH_EVENTS = 256
"""The events of a journal that are rebuilt at a time, within some milliseconds."""


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
            guard = self.guard
            with guard._open_sessions.openings.claim(self.id):
                if type(self) is DeferredSession:
                    opened = self._opening()
                    with guard._lock:
                        self._state, self._pipeline = opened._state, opened._pipeline
                        self.__class__ = Session
                        if guard._open_sessions.get(self.id) is opened:
                            guard._open_sessions.add(self)
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
        guard._open_sessions.openings.wait(started.session)
        opened = guard._open_sessions.get(started.session)
        if opened is not None:
            _check_opened(opened, started, parent)
            return resume_session(guard, opened) or opened
        if guard._journal is None:  # nothing to read
            return _start_for_owner(guard, started, parent, tags)
    return _start_for_owner(guard, started, parent, tags)


def _start_for_owner(
    guard: Guard, started: SessionStarted, parent: Session | str | None, tags: dict[str, Any]
) -> Session:
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
    that the event does not name. A journal is read and rebuilt piece by piece: between two pieces
    other threads have the guard's lock.
    """
    id_ = event.session
    with guard._open_sessions.openings.claim(id_):
        with guard._lock:
            opened = guard._open_sessions.get(id_)
            if opened is not None:
                if not isolated:
                    _check_resumed(event, opened._state)
                return opened
            _require_open(guard)
            guard._open_sessions.lock(id_)
        try:
            if id_ in guard._state.evaluator_state.sessions:  # of a thread that a fork left behind
                guard._state.forget(id_)
            rebuilt = _rebuild(guard, id_)
            with guard._lock:
                return _add_session(guard, event, rebuilt, isolated=isolated)
        except BaseException:
            with guard._lock:
                guard._state.forget(id_)
                guard._open_sessions.remove(id_)
            raise


def _add_session(
    guard: Guard, event: SessionStarted, rebuilt: _Rebuilt, *, isolated: bool
) -> Session:
    """Add a session that was rebuilt, or that is new. To be used under the guard's lock."""
    _require_open(guard)
    guard._open_sessions.require_lock(event.session)
    sessions = guard._state.evaluator_state.sessions
    resumed = sessions.get(event.session)
    parent = resumed.parent if resumed is not None else None
    if parent is not None and sessions.get(parent.id) is not parent:  # closed meanwhile
        guard._state.forget(event.session)
        rebuilt = _rebuild(guard, event.session)
        resumed = sessions.get(event.session)
    if resumed is not None:
        _check_resumed(event, resumed)
    elif guard._journal is not None and event.parent:  # may have been closed meanwhile
        _resolve_parent(guard, event.session, event.parent)
    first_number = max(rebuilt.last_number, guard._open_sessions.last_number(event.session))
    state = start_session_state(
        guard._evaluator, guard._state.evaluator_state, event, isolated=isolated
    )
    state.join_tree()
    guard._open_sessions.make_room(None if isolated else state.parent)
    session = Session(guard, state, first_number)
    session._pipeline.advice = rebuilt.advice
    steady_clock = _find_steady_clock(guard, "" if state.parent is None else state.parent.id)
    if resumed is not None:
        steady_clock = continue_from(steady_clock, state.now)
        if guard._constraint_sync is not None:
            guard._constraint_sync.resume_session(event.session)
        _repeat_clearings(guard, state)
    session._pipeline.steady_clock = steady_clock
    guard._open_sessions.add(session)
    guard._mark_used(event.session)
    if resumed is None:
        guard._events.emit(event)
    if guard._journal_retention is not None:
        guard._journal_retention.note_opened()
    if guard._journal_anchoring is not None:
        guard._journal_anchoring.start()
    return session


def _repeat_clearings(guard: Guard, state: SessionState) -> None:
    """Clear marks again that calls of a resumed session clear, unless the store has it."""
    if guard._stored_marks is None or state.marks is None:
        return
    if any(attempt.cleared for attempt in state.in_flight.values()):
        guard._stored_marks.poll()
        if state.marks.repeat_clearings(state):
            guard._stored_marks.try_save()


def _check_resumed(event: SessionStarted, resumed: SessionState) -> None:
    """Raise `ValueError` for another owner; a session whose parent is gone goes on alone."""
    found = event.parent if resumed.parent is None else resumed.parent.id
    _check_owner(event, resumed.scope_keys, found, event.parent)


def _require_open(guard: Guard) -> None:
    if guard.closed:
        raise ClosedError("the guard is closed: load another to open sessions")


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
    if not parent_id or _is_held(guard, parent_id):
        return parent_id
    if not reopen_session(guard, parent_id):
        raise ValueError(
            f"`parent` is `{parent_id}`: no such session is open, and there is no journal to "
            "resume it from; open the parent first"
        )
    return parent_id


class _Rebuilt(NamedTuple):
    """What a journal says of a session beside its state: the number of its latest call, advice."""

    last_number: int
    advice: PendingAdvice


def _rebuild(guard: Guard, session: str) -> _Rebuilt:
    """Rebuild a session from its journal, if it has one.

    Calls that could not be written have numbers too. Raises `AlteredError` for a journal that was
    altered, `ClosedError` if the guard is closed meanwhile.
    """
    journal = guard._journal
    last_number, lives_over = 0, 0
    advice, states = RebuiltAdvice(guard._evaluator), guard._state.evaluator_state.sessions
    current: _Life | None = None
    for batch in _read_batches(journal.read_events(session)) if journal is not None else ():
        is_over = False
        if isinstance(batch[0], SessionStarted) and not _leaves_parent_alone(guard, batch[0]):
            current = current or _find_life(guard, session)
            is_over = lives_over < current.earlier
            if not (is_over or _is_held(guard, batch[0].parent)):
                reopen_session(guard, batch[0].parent)
        with guard._lock:
            _require_open(guard)
            for event in batch:
                if isinstance(event, (Admitted, Refused)):
                    last_number = max(last_number + 1, parse_call_number(event.call))
                guard._state.rebuild(event)
                advice.follow(event, states.get(session))
                lives_over += isinstance(event, SessionEnded)
                if is_over and isinstance(event, SessionStarted):  # its parent may live again
                    states[session].count_aside()
    if last_number and guard._shared_budgets is not None:
        with guard._lock:
            guard._shared_budgets.invalidate()
    return _Rebuilt(last_number, advice.pending)


def _leaves_parent_alone(guard: Guard, started: SessionStarted) -> bool:
    """Whether a session has no parent, or one that is open and counts it already."""
    with guard._lock:
        parent = guard._state.evaluator_state.sessions.get(started.parent)
        return not started.parent or (
            parent is not None and started.session in parent.counted_children
        )


def _read_batches(events: Iterator[Event]) -> Iterator[list[Event]]:
    """Yield events in pieces, each start of a session first in its own."""
    batch: list[Event] = []
    for event in events:
        if batch and (len(batch) >= _BATCH_EVENTS or isinstance(event, SessionStarted)):
            yield batch
            batch = []
        batch.append(event)
    if batch:
        yield batch


def _is_held(guard: Guard, session: str) -> bool:
    """Whether a session is open, or this thread opens it. Waits for another that does."""
    with guard._lock:
        guard._open_sessions.openings.wait(session)
        return guard._open_sessions.is_held(session)


def resume_session(guard: Guard, session: SessionLifetime) -> Session | None:
    """Open a closed session; None if its run is over or the guard is closed."""
    reopened = False
    if guard._journal is not None and not _is_held(guard, session.id):
        reopened = reopen_session(guard, session.id)
    with guard._lock:
        if guard.closed:
            return None
        guard._open_sessions.openings.wait(session.id)
        opened = guard._open_sessions.get(session.id)
        if opened is None and reopened and reopen_session(guard, session.id):  # closed meanwhile
            opened = guard._open_sessions.get(session.id)
        if opened is not None and opened.closed:
            guard._open_sessions.lock(opened.id)
            opened._pipeline.resume()
        guard._mark_used(session.id)
        return opened


def reopen_session(guard: Guard, session: str) -> bool:
    """Resume a session from its journal. Returns whether it has one whose run is not over."""
    started = _find_life(guard, session).started
    if started is not None:
        start_session(guard, started)
    return started is not None


class _Life(NamedTuple):
    """The current life of a session: its start, None if there is none, and how many it had."""

    started: SessionStarted | None
    earlier: int


def _find_life(guard: Guard, session: str) -> _Life:
    """Return a session's current life, by its journal."""
    started: SessionStarted | None = None
    earlier = 0
    journal = guard._journal
    for event in journal.read_events(session) if journal is not None else ():
        if isinstance(event, SessionStarted):
            started = event
        elif isinstance(event, SessionEnded):
            started, earlier = None, earlier + 1
    return _Life(started, earlier)
