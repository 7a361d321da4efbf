"""The sessions that a guard keeps, least recently used first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from policyguard.evaluator.session_state import SessionState
from policyguard.guard.host_log import log_failure
from policyguard.guard.sessions.openings import SessionOpenings
from policyguard.journal.errors import JournalError
from policyguard.model.errors import SessionLimitError
from policyguard.store import fork_safety
from policyguard.store.errors import SessionBusyError, StoreError

if TYPE_CHECKING:
    from policyguard.guard.session import Session
    from policyguard.store.protocol import SessionLock, Store


class OpenSessions:
    """The sessions of a guard, at most `max_sessions`. To be used by one thread at a time.

    Using a session uses its ancestors too, so the least recently used one has no sub-agents. With
    a `store` each open session holds its lock. Without a journal, closed sessions stay here until
    they are reopened or evicted. `states` are the evaluator's. `deferred` are sessions that an
    event loop will open when it first uses them; `deferred_lock` makes one of each. `lock` is the
    guard's.
    """

    def __init__(
        self,
        states: dict[str, SessionState],
        store: Store | None,
        max_sessions: int,
        lock: threading.RLock,
    ) -> None:
        self.openings = SessionOpenings(lock)
        self._states = states
        self._store = store
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._locks: dict[str, SessionLock] = {}
        self._lock_generation: object = None
        self._lost: dict[str, None] = {}
        self._last_numbers: OrderedDict[str, int] = OrderedDict()
        self._number_floor = 0
        self.deferred: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self.deferred_lock = threading.RLock()
        fork_safety.guard_locks.add(self.deferred_lock)

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, id_: str) -> Session | None:
        """Return the session with this id, if it is here."""
        return self._sessions.get(id_)

    def lock(self, id_: str) -> None:
        """Lock a session for this process. Raises `SessionBusyError` if it is locked elsewhere."""
        if self._store is not None:
            self._locks[id_] = self._store.lock_session(id_)

    def require_lock(self, id_: str) -> None:
        """Raise `SessionBusyError` if the lock of a session was lost while it was opened."""
        if self._store is not None and id_ not in self._locks:
            raise SessionBusyError(
                Path(id_), "the lock of the session was lost while it was opened", "try again"
            )

    def unlock(self, id_: str) -> None:
        """Release a session's lock, if it has one."""
        lock = self._locks.pop(id_, None)
        if lock is not None:
            lock.release()

    def find_lost(self) -> list[str]:
        """Return the sessions whose lock was lost with a connection, and which another has had.

        The others are locked again. Raises `StoreError`.
        """
        generation = getattr(self._store, "lock_generation", None)
        if generation == self._lock_generation or self._store is None:
            return []
        lost = self._lost  # kept if the store fails on the way
        for id_, lock in self._locks.items():
            if not lock.is_held and id_ not in lost:
                try:
                    found = self._store.lock_session(id_)
                except SessionBusyError:
                    lost[id_] = None
                    continue
                if getattr(found, "before", None) != getattr(lock, "opening", None):
                    lost[id_] = None
                    found.release()  # under this number nothing may be written of the old state
                    continue
                self._locks[id_] = found
        self._lost = {}
        self._lock_generation = generation
        return [*lost]

    def is_held(self, id_: str) -> bool:
        """Whether a session is here, or is being opened."""
        return id_ in self._sessions or id_ in self._locks

    def add(self, session: Session) -> None:
        """Add an open session."""
        self._sessions[session.id] = session

    def mark_used(self, id_: str) -> bool:
        """Make a session and its ancestors the last to be evicted. Returns whether it is here."""
        sessions = self._sessions
        if id_ not in sessions:
            return False
        used: SessionState | None = self._states[id_]
        while used is not None:
            if used.id in sessions:
                sessions.move_to_end(used.id)
            used = used.parent
        return True

    def make_room(self, parent: SessionState | None) -> None:
        """End the least recently used sessions until there is room for one more.

        `SessionLimitError` if that would end an ancestor of the new session, a sub-agent of
        `parent`. Errors of writing down the end of an evicted session are logged.
        """
        ancestors: frozenset[str] = frozenset()
        if parent is not None:
            self.mark_used(parent.id)
            ancestors = frozenset(one.id for one in (parent, *parent.ancestors()))
        while len(self._sessions) >= self._max_sessions:
            oldest = next(iter(self._sessions.values()))
            if parent is not None and oldest.id in ancestors:
                raise SessionLimitError(
                    f"no room for a sub-agent of session `{parent.id}`: it would evict its own "
                    f"ancestor `{oldest.id}`; raise `bounds.sessions` ({self._max_sessions})"
                )
            try:
                oldest.end()
            except (JournalError, StoreError):
                log_failure(f"session {oldest.id!r} was evicted and its end could not be written")

    def children_of(self, parent: str) -> list[Session]:
        """Return the sessions of a session's sub-agents."""
        state = self._states.get(parent)
        if state is None or not state.cel_session["children"]:
            return []
        return [one for id_, one in self._sessions.items() if self._states[id_].parent is state]

    def last_number(self, id_: str) -> int:
        """Return the number below which call ids of earlier lives of a session may lie."""
        return self._last_numbers.get(id_, self._number_floor)

    def remove(self, id_: str) -> None:
        """Forget a session, so that its id may be opened anew, and release its lock."""
        session = self._sessions.pop(id_, None)
        if session is not None:
            self._remember_number(id_, session._pipeline.last_number)
            parent = session._state.parent
            if parent is not None:
                parent.note_counted(id_)
        self.unlock(id_)

    def _remember_number(self, id_: str, number: int) -> None:
        """Keep the number of a session's latest call; those of the oldest become one maximum."""
        numbers = self._last_numbers
        numbers.pop(id_, None)
        numbers[id_] = number
        if len(numbers) > self._max_sessions:
            self._number_floor = max(self._number_floor, numbers.popitem(last=False)[1])

    def detach_all(self, exit_stack: ExitStack) -> None:
        """Detach all sessions; their locks are released when `exit_stack` is closed."""
        for lock in self._locks.values():
            exit_stack.callback(lock.release)
        for session in self._sessions.values():
            session._detach()
        self._locks, self._sessions = {}, OrderedDict()
