"""The sessions that a guard has open, in the order of their use, and whose sub-agents they are."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from typing import TYPE_CHECKING

from policyguard.evaluator.session_state import SessionState
from policyguard.guard.host_log import log_failure
from policyguard.journal.errors import JournalError
from policyguard.store.errors import StoreError
from policyguard.store.protocol import SessionLock, Store

if TYPE_CHECKING:
    from policyguard.guard.session import Session


class OpenSessions:
    """The open sessions. One thread at a time may use it.

    One that is used is used with its ancestors: the one that was used longest ago has no
    sub-agents. In a `store` each is held on lease, so that no other process has it open, too.
    `states` are what is known of each.
    """

    __slots__ = ("_locks", "_open", "_states", "_store")

    def __init__(self, states: dict[str, SessionState], store: Store | None) -> None:
        self._states = states
        self._store = store
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._locks: dict[str, SessionLock] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def get(self, id_: str) -> Session | None:
        """The open session of this id."""
        return self._open.get(id_)

    def lock(self, id_: str) -> None:
        """Take a session for this process. Raises `SessionBusyError` where another has it."""
        if self._store is not None:
            self._locks[id_] = self._store.lock_session(id_)

    def is_held(self, id_: str) -> bool:
        """Whether a session is open, or about to be."""
        return id_ in self._open or id_ in self._locks

    def add(self, session: Session) -> None:
        """A session that is held is open now."""
        self._open[session.id] = session

    def mark_used(self, id_: str) -> bool:
        """A session is in use: it is the last to go, but for its ancestors. False: not open."""
        opened = self._open
        if id_ not in opened:
            return False
        used: SessionState | None = self._states[id_]
        while used is not None:
            if used.id in opened:
                opened.move_to_end(used.id)
            used = used.parent
        return True

    def make_room(self, max_sessions: int, parent: SessionState | None) -> None:
        """Close those used longest ago, so that with one more there are at most `most`.

        The one more is a sub-agent of `above`, if that is given: `RuntimeError` where it would take
        the room of one of its own ancestors. What cannot be written down of those that go is
        logged: it is not the fault of who comes next.
        """
        line: frozenset[str] = frozenset()
        if parent is not None:
            self.mark_used(parent.id)
            line = frozenset(one.id for one in (parent, *parent.ancestors()))
        while len(self._open) >= max_sessions:
            oldest = next(iter(self._open.values()))
            if parent is not None and oldest.id in line:
                raise RuntimeError(
                    f"there is no room for a sub-agent of session `{parent.id}`: "
                    f"`bounds.sessions` is {max_sessions}, and it would take the place of `{oldest.id}`, "
                    "which pays for it; allow more"
                )
            try:
                oldest.close()
            except (JournalError, StoreError):
                log_failure(f"session {oldest.id!r} had to go, and its end is not written")

    def children_of(self, parent: str) -> list[Session]:
        """The open sessions of a session's sub-agents."""
        above = self._states.get(parent)
        if above is None or not above.cel_session["children"]:
            return []
        return [one for id_, one in self._open.items() if self._states[id_].parent is above]

    def remove(self, id_: str) -> None:
        """A session is closed: its id may be opened anew."""
        self._open.pop(id_, None)
        lease = self._locks.pop(id_, None)
        if lease is not None:
            lease.release()

    def detach_all(self, exit_stack: ExitStack) -> None:
        """Let go of all; the leases at the very end."""
        for lease in self._locks.values():
            exit_stack.callback(lease.release)
        for session in self._open.values():
            session._detach()
        self._locks, self._open = {}, OrderedDict()
