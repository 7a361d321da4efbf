"""A policy in force, and the sessions under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.evaluator.evaluation import GuardMode
from policyguard.evaluator.fold import start_session
from policyguard.evaluator.session_state import SessionState
from policyguard.guard import validate
from policyguard.guard.approver import Approver, check_approver
from policyguard.guard.call_events import CallEventEmitter, FastCallEmitter
from policyguard.guard.constraint_sync import ConstraintSync, open_store
from policyguard.guard.event_loop import running_loop
from policyguard.guard.guard_state import GuardState
from policyguard.guard.host_log import warn
from policyguard.guard.listeners import Listener, Listeners
from policyguard.guard.open_sessions import OpenSessions
from policyguard.guard.session import Session
from policyguard.guard.session_resume import reopen_session, resolve_parent, resume_session
from policyguard.guard.shared_budgets import open_shared_budgets
from policyguard.guard.tool_decorator import guard_tool
from policyguard.journal.errors import JournalError
from policyguard.learned import snapshot as snapshots
from policyguard.model.constraint import Constraint
from policyguard.model.event import Closed, Ended, Event, Released, Started
from policyguard.store import fork_safety
from policyguard.store.errors import StoreError
from policyguard.store.protocol import Store

if TYPE_CHECKING:
    from policyguard.journal.journal import Journal

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """A policy in force. Shared by all sessions of a process; safe to use from many threads.

    One lock makes each check atomic: what it admits is counted before the next one looks. As a
    context manager it is closed at the end.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        *,
        clock: Callable[[], int] = time.time_ns,
        listener: Listener | None = None,
        observe: bool = False,
        store: Store | None = None,
        approver: Approver | None = None,
        journal_key: str | Path | None = None,
    ) -> None:
        """As `load` does, of a compiled policy; `store` stays its owner's to close."""
        now = validate.clock_time(clock)
        if approver is not None:
            check_approver(approver)
        if store is not None and not callable(getattr(store, "lock_session", None)):
            raise TypeError(f"`store` is the path of a SQLite file or a store, not {store!r:.40}")
        key = _read_key(journal_key, store) if journal_key is not None else None
        self._fingerprinter = compiled.fingerprinter
        if store is not None:
            self._fingerprinter.rekey(store.fingerprint_key)
        self._evaluator = compiled.evaluator
        self.diagnostics = compiled.diagnostics
        self._clock = clock
        self._lock = threading.RLock()
        fork_safety.guard_locks.add(self._lock)
        self._state = GuardState(compiled)
        self._constraint_sync = (
            ConstraintSync(store, self._state.constraint_set) if store is not None else None
        )
        if self._constraint_sync is not None:
            self._state.learner.use_shared_store()
        self._journal = _open_journal(compiled, store, now, key) if store is not None else None
        purses = store.quotas if store is not None else None
        self._shared_budgets = self._state.shared_budgets = open_shared_budgets(
            purses, self._evaluator, self._state.engine_state.ledger
        )
        self._exit_stack = ExitStack()
        if self._shared_budgets is not None:
            self._exit_stack.callback(self._shared_budgets.close)
        self._approver = approver
        self._mode = GuardMode(
            observe or compiled.evaluator.observe_only,
            "somebody" if approver else "nobody",
        )
        self._listeners = Listeners()
        if listener is not None:
            self._listeners.add(listener, ())
        self._update_emitters()
        self._latest_session = ""
        self._may_block = store is not None
        self.closed = False
        self._open_sessions = OpenSessions(
            self._state.engine_state.sessions, store, self._evaluator.bounds.sessions
        )

    @classmethod
    def load(
        cls,
        policy: str | Path | Iterable[str | Path],
        *,
        store: Store | str | Path | None = None,
        clock: Callable[[], int] = time.time_ns,
        listener: Listener | None = None,
        approver: Approver | None = None,
        journal_key: str | Path | None = None,
        cache: bool | None = None,
    ) -> Guard:
        """Check and compile a policy: a pack's name (`core`), a file, or several (the last wins).

        `clock` gives nanoseconds since 1970 (UTC). `listener` is called with every event, in order,
        under the guard's lock. `store` is where state lasts: a SQLite file (the journals stand in a
        folder beside it), or a store; with None nothing is written anywhere. `approver` is a plain
        function that is called with the session and the decision when `check` answers with *ask*:
        it may call `session.approve` at once, or see to it that somebody does later. What it
        returns means nothing; what it raises is logged, stands in the decision's `errors`, and the
        call stays refused. Without one, a rule's `approval.otherwise` says what happens.
        `journal_key` is the path of a file with a key (16 bytes or more) that the journals' hashes
        are made with, for `policyguard journal verify --key`. With `cache` (by default where there is a
        store) the compiled policy is kept in the user's cache folder for the next time.

        Raises `PolicyError` with every diagnostic where the policy has an error, `StoreError` or
        `JournalError` where the store, the folder or the key cannot be used, `TypeError` for a
        value of another type and for an approver that is async, `ValueError` for a key without
        journals.
        """
        compiled = compile_policy(policy, cache=store is not None if cache is None else cache)
        kept = open_store(store, compiled.policy) if isinstance(store, (str, Path)) else store
        guard = cls(
            compiled,
            clock=clock,
            listener=listener,
            store=kept,
            approver=approver,
            journal_key=journal_key,
        )
        if kept is not None and kept is not store:
            guard._exit_stack.callback(kept.close)
        return guard

    def close(self) -> None:
        """Let go of the guard's sessions and files, and of its store where it has opened that.

        The sessions are not over: another guard may go on with them. Here they refuse all calls,
        and none can be opened any more. Raises `StoreError` or `JournalError` where something was
        still to be written and could not be; all the rest is let go none the less.
        """
        with self._lock, self._exit_stack as last:
            self.closed = True
            self._open_sessions.detach_all(last)
            if self._journal is not None:
                last.callback(self._journal.close)
            self._journal = None
            self._update_emitters()

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<Guard policy={self.policy!r} sessions={len(self._open_sessions)}{closed}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, listener: Listener, *event_types: type[Event]) -> Callable[[], None]:
        """Call `listener` with every event from now on, or with those of some kinds.

        The kinds are the classes of `policyguard.model.event`, such as `Refused`. It is called in
        order, under the guard's lock: it should be quick, and hand on what takes time. What it
        raises is logged, and stops nothing. Returns what takes the listener off again.
        """
        off = self._listeners.add(listener, event_types)
        self._update_emitters()
        return off

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._evaluator.name

    @property
    def digest(self) -> str:
        """SHA-256 of the policy's layers and of the environment's values in it, in hex."""
        return self._evaluator.digest

    def session(
        self,
        id: str,  # noqa: A002 - the public surface
        *,
        parent: Session | str | None = None,
        agent: str | None = "",
        user: str | None = "",
        roles: Iterable[str] | None = (),
        project: str | None = "",
        cwd: str | Path | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> Session:
        """Open a session, or return the open one of this id.

        `parent` is the session of the agent that spawned this one: its budgets pay for this one's
        calls, and this one ends with it. Where it is not open it is gone on with first, as its
        journal has it; so is the one that this session's journal names. `tags` are facts that the
        host gives, as the policy declares them; what it does not declare is ignored, since a host
        may serve several policies. What is None is not known. In names halves of surrogate pairs
        (of a folder's odd name) become escapes.

        `ValueError` for a parent that is neither open nor to be gone on with, that is closed or of
        another guard, and for tags that are missing or have the wrong type. `RuntimeError` where
        the guard is closed, or has no room for a session beside its ancestors. With a store:
        `SessionBusyError` where another process or guard has it, `AlteredError` where its journal
        is not as it was left, `JournalError` and `StoreError` for what cannot be read or written.
        """
        name = validate.identifier("id", validate.text("id", id))
        started = Started(
            session=name,
            at=self._clock(),
            agent=validate.identifier("agent", agent),
            user=validate.identifier("user", user),
            roles=validate.text_list("roles", roles),
            project=validate.identifier("project", project),
            cwd=validate.path("cwd", cwd),
        )
        checked = validate.mapping("tags", tags)
        known = self._open_sessions.get(name)
        if self._may_block and known is None and not self.closed and running_loop() is not None:
            opening = partial(self._open_session, started, parent, checked)
            return Session._deferred(self, name, opening)
        return self._open_session(started, parent, checked)

    def _open_session(
        self, started: Started, parent: Session | str | None, tags: dict[str, Any]
    ) -> Session:
        """Open a session for its owner, or return the open one of its id."""
        with self._lock:
            known = self._open_sessions.get(started.session)
            if known is not None:
                _check_owner(known._state, started)
                return self._resume_session(known) or known
            parent_id = "" if self.closed else resolve_parent(self, started.session, parent)
            checked = self._evaluator.check_tags(tags)
            return self._start_session(replace(started, parent=parent_id, tags=checked))

    def _start_session(self, event: Started, *, isolated: bool = False) -> Session:
        """Open a session as an event says, or return the open one of its id.

        `apart` is for replays of runs that have nothing to do with each other: an agent, user or
        project that the event does not name is then this session's own.
        """
        with self._lock:
            known = self._open_sessions.get(event.session)
            if known is not None:
                return known
            if self.closed:
                raise RuntimeError("the guard is closed: load another for more sessions")
            self._open_sessions.lock(event.session)
            try:
                first_number = max(
                    resume_session(self, event.session),
                    self._open_sessions.last_number(event.session),
                )
                resumed = self._state.engine_state.sessions.get(event.session)
                if resumed is not None:
                    _check_owner(resumed, event)
                state = start_session(
                    self._evaluator, self._state.engine_state, event, isolated=isolated
                )
                above = None if isolated else state.parent
                self._open_sessions.make_room(above)
                session = Session(self, state, first_number)
                self._open_sessions.add(session)
                self._mark_used(event.session)
                if resumed is None:
                    self._events.emit(event)
            except BaseException:
                self._state.forget(event.session)
                self._open_sessions.remove(event.session)
                raise
            return session

    def _close_session(self, session: Session) -> None:
        """Let go of a session; without a journal its state stays here."""
        try:
            if self._journal is None:
                session._pipeline.suspend()
                return
            if self._shared_budgets is not None:
                self._shared_budgets.release_held(session._state)
            self._state.forget(session.id)
            session._detach()
            self._journal.close_session(session.id)
        finally:
            if self._journal is None:
                self._open_sessions.unlock(session.id)
            else:
                self._open_sessions.remove(session.id)

    def _resume_session(self, session: Session) -> Session | None:
        """Open a session that was let go; None if its run or the guard is over."""
        if self.closed:
            return None
        known = self._open_sessions.get(session.id)
        if known is None:
            if not reopen_session(self, session.id):
                return None
            known = self._open_sessions.get(session.id)
        elif known.closed:
            self._open_sessions.lock(known.id)
            known._pipeline.resume()
        self._mark_used(session.id)
        return known

    def _mark_used(self, session: str) -> None:
        """A session is in use: it is the last to go where there are too many."""
        if self._open_sessions.mark_used(session):
            self._latest_session = session

    def _apply(self, event: Event) -> None:
        """Write an event down, let it happen, and tell of it.

        Raises `JournalError` where it cannot be written: then it has not happened; only the end of
        a call counts all the same. One that is written has happened, anchored or not.
        """
        try:
            self._events.write(event)
        except JournalError:
            if isinstance(event, (Released, Ended)):
                self._state.fold(event)
            raise
        except StoreError as error:
            warn(f"an event of session {event.session!r} is written, and not anchored: {error}")
        self._state.fold(event)
        self._events.notify(event)

    def _end_session(self, event: Closed) -> None:
        """A session is over: write that down, let its id be opened anew, and tell of it."""
        try:
            self._events.write(event)
        finally:
            self._open_sessions.remove(event.session)
            self._events.notify(event)

    def constraints(self) -> tuple[Constraint, ...]:
        """What has been learned and holds, the latest confirmed last.

        What other processes have learned and revoked is seen at once: `StoreError` where the
        store cannot be looked at.
        """
        with self._lock:
            if self._constraint_sync is not None and not self.closed:
                self._constraint_sync.poll()
            return tuple(sorted(self._state.constraint_set, key=lambda one: one.confirmed_at or 0))

    def revoke(self, id: str, *, by: str) -> bool:  # noqa: A002 - the constraint's own word
        """Take a constraint back, for every process that keeps the same store.

        It is not learned again. Returns whether there was one, in the store too. `by` names who
        revokes. `StoreError` where the store does not take it: then it is not revoked, and the
        call may be repeated. `RuntimeError` where the guard is closed.
        """
        with self._lock:
            if self.closed:
                raise RuntimeError("the guard is closed: load another to revoke constraints")
            if self._constraint_sync is not None:
                self._constraint_sync.poll()
            if self._state.constraint_set.get(id) is None:
                return False
            if self._constraint_sync is not None:
                self._constraint_sync.revoke(id, by=by, at=self._clock())
            else:
                self._state.constraint_set.revoke(id)
            return True

    def snapshot(self) -> bytes:
        """What has been learned, evidence included, as JSON: for `restore`.

        The key of its fingerprints is in it: keep it as private as the arguments of the calls.
        """
        with self._lock:
            return snapshots.encode(self._state.constraint_set, self._fingerprinter.key)

    def restore(self, snapshot: bytes) -> None:
        """Add what another guard has learned, before any session is opened.

        What was revoked, there or here, stays so. With a store it is written there, but for
        revocations of what the store does not know, which this guard remembers.
        `ValueError` for what is no snapshot, and where this guard's fingerprints have another key
        already: it keeps a store of its own, or has open sessions.
        """
        with self._lock:
            read = snapshots.decode(snapshot)
            if read.key != self._fingerprinter.key:
                if self._constraint_sync is not None or self._open_sessions:
                    raise ValueError(
                        "this guard's fingerprints have a key of their own; "
                        "restore into a guard without a store, before its first session"
                    )
                self._fingerprinter.rekey(read.key)
            snapshots.restore(self._state.constraint_set, read)
            if self._constraint_sync is not None:
                self._constraint_sync.restore(read, self._clock())

    def tool(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function so that each call of it is checked and recorded.

        The call belongs to the session of the surrounding `with guard.session(...):`. A refused
        call raises `CallRefused`, one that runs out of time `ToolTimeoutError`. For plain and for
        async functions, and for methods (`self` is no argument of the call); `TypeError` for what
        cannot be a tool, such as a generator.
        """
        return guard_tool(self, fn)

    def _update_emitters(self) -> None:
        """Choose how events go out: without listeners, ordinary calls need none."""
        journal, listeners = self._journal, self._listeners
        self._has_audience = journal is not None or listeners.has_listeners
        self._events = CallEventEmitter(journal, listeners)
        if journal is not None and not listeners.has_listeners:
            self._events = FastCallEmitter(journal, listeners, self._evaluator.bounds.plans)


def _check_owner(state: SessionState, started: Started) -> None:
    """Raise `ValueError` if a session is opened for another user, agent or project than it has."""
    for name in ("user", "agent", "project"):
        wanted, found = getattr(started, name), state.scope_keys[name]
        if wanted and wanted != found:
            raise ValueError(
                f"session `{state.id}` has {name} `{found}`, not `{wanted}`: use another id, "
                "or end that session first"
            )


def _open_journal(
    compiled: CompiledPolicy, store: Store, now: int, key: bytes | None
) -> Journal | None:
    from policyguard.guard.journal_setup import (
        open_journal,  # only who keeps something writes journals
    )

    return open_journal(compiled, store, now, key)


def _read_key(file: str | Path, store: Store | None) -> bytes:
    from policyguard.guard.journal_setup import read_journal_key  # as above

    if store is None:
        raise ValueError("`journal_key` is for journals, which stand beside a store: give `store`")
    return read_journal_key(file)
