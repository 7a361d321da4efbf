"""What a guard remembers beyond sessions, to list and revoke: constraints and grants."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policyguard.engines.fingerprint import Fingerprinter
from policyguard.evaluator.evaluation import GuardMode
from policyguard.evaluator.evaluator import Evaluator
from policyguard.guard.clock import SteadyClock
from policyguard.guard.guard_state import GuardState
from policyguard.guard.host_log import warn
from policyguard.guard.sessions.open_sessions import OpenSessions
from policyguard.model.errors import ClosedError

if TYPE_CHECKING:
    from policyguard.guard.approvals.closed_sessions import ClosedSessions
    from policyguard.guard.approvals.grant_sync import GrantSync
    from policyguard.guard.candidate import Candidate
    from policyguard.guard.learning.constraint_sync import ConstraintSync
    from policyguard.journal.journal import Journal
    from policyguard.model.constraint import Constraint
    from policyguard.model.grant import Grant
    from policyguard.model.question import OpenQuestion


class GuardRecords:
    """The part of `Guard` that lists, revokes and copies what it remembers."""

    _candidate: Candidate | None
    _constraint_sync: ConstraintSync | None
    _evaluator: Evaluator
    _fingerprinter: Fingerprinter
    _grant_sync: GrantSync | None
    _lock: threading.RLock
    _mode: GuardMode
    _open_sessions: OpenSessions
    _state: GuardState
    _steady_clock: SteadyClock
    _closed_lock: threading.Lock
    _closed_sessions: ClosedSessions | None
    _journal: Journal | None
    closed: bool

    def constraints(self) -> tuple[Constraint, ...]:
        """Return the learned constraints that hold, the latest confirmed last.

        They include those of other processes with the same store. `StoreError` if the store cannot
        be read.
        """
        with self._lock:
            if not self.closed:
                self._poll_store()
            return self._state.constraint_set.by_confirmation()

    def questions(self, *, also_closed: bool = False) -> tuple[OpenQuestion, ...]:
        """Return the calls that wait for an approval, by session, oldest first.

        They are those of open sessions; with `also_closed`, of all sessions with journals beside
        this guard's store. These stay closed.
        """
        from policyguard.guard.approvals.questions import open_questions  # a check needs none

        redact = self._state.redact
        with self._lock:
            now = self._steady_clock.read()[0]
            held = self._state.evaluator_state.sessions
            found = tuple(
                question
                for state in held.values()
                for question in open_questions(self._evaluator, state, now, redact)
            )
            journal = self._journal
        if not also_closed or journal is None:
            return found
        with self._closed_lock:
            if self._closed_sessions is None:
                from policyguard.guard.approvals.closed_sessions import ClosedSessions

                self._closed_sessions = ClosedSessions(journal, self._evaluator)
            closed = self._closed_sessions.questions(held.__contains__, now, redact)
            return (*found, *closed)

    def expect_answers(self) -> None:
        """Say that people answer what asks, though there is no approver.

        A rule's `approval: {otherwise: allow}` lets a call run from now on only when its time for
        an answer has passed.
        """
        with self._lock:
            if self._mode.approver_presence == "absent":
                self._mode = replace(self._mode, approver_presence="present")

    def grants(self) -> tuple[Grant, ...]:
        """Return the grants that hold, the latest last, those of other processes among them.

        `StoreError` if the store cannot be read.
        """
        with self._lock:
            if not self.closed:
                self._poll_store()
            now = self._steady_clock.read()[0]
            held = self._state.evaluator_state.grants
            return tuple(grant for grant in held if not grant.is_expired(now))

    def _forget_grants(self, session: str) -> None:
        """Remove what was granted for a session that has ended. Raises `StoreError`."""
        held = self._state.evaluator_state.grants
        for grant in held:
            if grant.scope == f"session:{session}":
                held.remove(grant.id)
                if self._grant_sync is not None:
                    self._grant_sync.delete(grant.id)

    def _poll_store(self) -> None:
        """Load what other processes have learned, granted or revoked. Raises `StoreError`."""
        if self._grant_sync is not None:
            self._grant_sync.poll()
        if self._constraint_sync is not None:
            self._constraint_sync.poll()
        for session in self._open_sessions.find_lost():
            if self._open_sessions.is_held(session):  # not let go with its parent
                self._drop_session(
                    session, "is another process's now: the connection to the store was lost"
                )

    def _drop_session(self, session: str, reason: str) -> None:
        """Let go of a session that another process has taken over, and write nothing more of it.

        Its sub-agents are let go before it: their state counts on the session's.
        """
        for child in self._open_sessions.children_of(session):
            self._drop_session(child.id, f"is let go with its parent {session!r}")
        warn(f"session {session!r} {reason}")
        opened = self._open_sessions.get(session)
        if session in self._state.evaluator_state.sessions:
            self._state.forget(session)
        if opened is not None:
            opened._detach()
        if self._journal is not None:
            self._journal.abandon_session(session)
        self._open_sessions.remove(session)

    def _drop_lost(self, session: str) -> None:
        """Let go of a session at once whose anchor was refused, since another has opened it."""
        if not self.closed and self._open_sessions.is_held(session):
            self._drop_session(session, "is another process's now: it was opened there")
            if self._constraint_sync is not None:  # others may be lost, or have to be locked anew
                self._constraint_sync.next_poll = 0.0

    def revoke(self, id: str, *, by: str) -> bool:  # noqa: A002 - the constraint's own word
        """Revoke a constraint or a grant, for every process with the same store.

        A constraint is not learned again; what a grant allowed is asked about again. Returns
        whether there was one with this id. `by` names the person who revokes it.
        `StoreError` if the store cannot be written: then it is not revoked. `ClosedError` if the
        guard is closed.
        """
        with self._lock:
            if self.closed:
                raise ClosedError("the guard is closed: load another to revoke anything")
            self._poll_store()
            grants = self._state.evaluator_state.grants
            if grants.get(id) is not None:
                if self._grant_sync is not None:
                    self._grant_sync.revoke(id, by=by, at=self._steady_clock.read()[0])
                grants.remove(id)
                return True
            if self._state.constraint_set.get(id) is None:
                return False
            if self._constraint_sync is not None:
                self._constraint_sync.revoke(id, by=by, at=self._steady_clock.read()[0])
            else:
                self._state.constraint_set.revoke(id)
            return True

    def snapshot(self) -> bytes:
        """Return the learned constraints and their evidence as JSON, for `restore`.

        It contains the key of the fingerprints: keep it as private as the calls' arguments.
        """
        from policyguard.learned import snapshot as snapshots

        with self._lock:
            return snapshots.encode(self._state.constraint_set, self._fingerprinter.key)

    def restore(self, snapshot: bytes) -> None:
        """Add the constraints and evidence of another guard's snapshot, before opening sessions.

        What was revoked in either guard stays revoked. A store is updated too, except for
        revocations of constraints unknown to it, which this guard remembers. `ValueError` for
        something that is not a snapshot, and if this guard's fingerprints already have another key,
        since it has a store or open sessions.
        """
        from policyguard.learned import snapshot as snapshots

        with self._lock:
            decoded = snapshots.decode(snapshot)
            if decoded.key != self._fingerprinter.key:
                if self._constraint_sync is not None or self._open_sessions:
                    raise ValueError(
                        "this guard's fingerprints have another key; "
                        "restore into a guard without a store, before its first session"
                    )
                self._fingerprinter.rekey(decoded.key)
                if self._candidate is not None:
                    self._candidate.rekey(decoded.key)
            snapshots.restore(self._state.constraint_set, decoded)
            if self._constraint_sync is not None:
                self._constraint_sync.restore(decoded, self._steady_clock.read()[0])
