"""A policy in force, and the sessions under it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from policyguard.compiler import Compiled, compile_policy
from policyguard.evaluator.fold import start
from policyguard.evaluator.verdict import Stance
from policyguard.guard import given
from policyguard.guard.approver import Approver, fit
from policyguard.guard.keeper import Keeper, opened
from policyguard.guard.listeners import Listener, Listeners
from policyguard.guard.purse import purser_of
from policyguard.guard.resuming import parent_of, resume
from policyguard.guard.session import Session
from policyguard.guard.sessions import Sessions
from policyguard.guard.teller import Teller
from policyguard.guard.tool import guarded
from policyguard.guard.warning import warn
from policyguard.guard.world import World
from policyguard.journal.errors import JournalError
from policyguard.learned import snapshot as snapshots
from policyguard.model.constraint import Constraint
from policyguard.model.event import Closed, Ended, Event, Released, Started
from policyguard.store import forks
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
        compiled: Compiled,
        *,
        clock: Callable[[], int] = time.time_ns,
        listener: Listener | None = None,
        observe: bool = False,
        store: Store | None = None,
        approver: Approver | None = None,
        journal_key: str | Path | None = None,
        replaying: bool = False,
    ) -> None:
        """As `load` does, of a compiled policy; `store` stays its owner's to close."""
        now = given.time(clock)
        if approver is not None:
            fit(approver)
        if store is not None and not callable(getattr(store, "lease", None)):
            raise TypeError(f"`store` is the path of a SQLite file or a store, not {store!r:.40}")
        key = _key(journal_key, store) if journal_key is not None else None
        self._fingerprinter = compiled.fingerprinter
        if store is not None:
            self._fingerprinter.rekey(store.key)
        self.evaluator = compiled.evaluator
        self.diagnostics = compiled.diagnostics
        self.clock = clock
        self.lock = threading.RLock()
        forks.guards.add(self.lock)
        self.world = World(compiled)
        self.keeper = Keeper(store, self.world.memory) if store is not None else None
        if self.keeper is not None:
            self.world.learner.share()
        self.journal = _journal(compiled, store, now, key) if store is not None else None
        purses = store.purses if store is not None else None
        self.purser = self.world.purser = purser_of(purses, self.evaluator, self.world.state.book)
        self._closing = ExitStack()
        if self.purser is not None:
            self._closing.callback(self.purser.close)
        self.approver = approver
        self.stance = Stance(
            observe or compiled.evaluator.observe_only,
            "never" if replaying else "somebody" if approver else "nobody",
        )
        self._listeners = Listeners()
        if listener is not None:
            self._listeners.add(listener, ())
        self._hearing()
        self.latest = ""
        self.closed = False
        self.sessions = Sessions(self.world.state.sessions, store)

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
        are made with, for `policyguard verify --key`. With `cache` (by default where there is a
        store) the compiled policy is kept in the user's cache folder for the next time.

        Raises `PolicyError` with every diagnostic where the policy has an error, `StoreError` or
        `JournalError` where the store, the folder or the key cannot be used, `TypeError` for a
        value of another type and for an approver that is async, `ValueError` for a key without
        journals.
        """
        compiled = compile_policy(policy, cache=store is not None if cache is None else cache)
        kept = opened(store, compiled.policy) if isinstance(store, (str, Path)) else store
        guard = cls(
            compiled,
            clock=clock,
            listener=listener,
            store=kept,
            approver=approver,
            journal_key=journal_key,
        )
        if kept is not None and kept is not store:
            guard._closing.callback(kept.close)
        return guard

    def close(self) -> None:
        """Let go of the guard's sessions and files, and of its store where it has opened that.

        The sessions are not over: another guard may go on with them. Here they refuse all calls,
        and none can be opened any more. Raises `StoreError` or `JournalError` where something was
        still to be written and could not be; all the rest is let go none the less.
        """
        with self.lock, self._closing as last:
            self.closed = True
            self.sessions.leave(last)
            if self.journal is not None:
                last.callback(self.journal.close)
            self.journal = None
            self._hearing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, listener: Listener, *kinds: type[Event]) -> Callable[[], None]:
        """Call `listener` with every event from now on, or with those of some kinds.

        The kinds are the classes of `policyguard.model.event`, such as `Refused`. It is called in
        order, under the guard's lock: it should be quick, and hand on what takes time. What it
        raises is logged, and stops nothing. Returns what takes the listener off again.
        """
        off = self._listeners.add(listener, kinds)
        self._hearing()
        return off

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self.evaluator.name

    @property
    def digest(self) -> str:
        """SHA-256 of the policy's layers and of the environment's values in it, in hex."""
        return self.evaluator.digest

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
        name = given.known_as("id", given.text("id", id))
        with self.lock:
            known = self.sessions.get(name)
            if known is not None:
                self.touch(name)
                return known
            above = "" if self.closed else parent_of(self, name, parent)
            return self.start(
                Started(
                    session=name,
                    at=self.clock(),
                    parent=above,
                    agent=given.known_as("agent", agent),
                    user=given.known_as("user", user),
                    roles=given.texts("roles", roles),
                    project=given.known_as("project", project),
                    cwd=given.path("cwd", cwd),
                    tags=self.evaluator.check_tags(given.facts("tags", tags)),
                )
            )

    def start(self, event: Started, *, apart: bool = False) -> Session:
        """Open a session as an event says, or return the open one of its id.

        `apart` is for replays of runs that have nothing to do with each other: an agent, user or
        project that the event does not name is then this session's own.
        """
        with self.lock:
            known = self.sessions.get(event.session)
            if known is not None:
                return known
            if self.closed:
                raise RuntimeError("the guard is closed: load another for more sessions")
            self.sessions.hold(event.session)
            try:
                calls = resume(self, event.session)
                resumed = event.session in self.world.state.sessions
                state = start(self.evaluator, self.world.state, event, apart=apart)
                above = None if apart else state.parent
                self.sessions.make_room(self.evaluator.bounds.sessions, above)
                session = Session(self, state, calls)
                self.sessions.put(session)
                self.touch(event.session)
                if not resumed:
                    self.emit(event, False)
            except BaseException:
                begun = self.world.state.sessions.get(event.session)
                if begun is not None and begun.parent is not None:
                    begun.parent.facts["children"] -= 1
                self.world.rebuild(Closed(session=event.session))  # it may be opened another time
                self.sessions.forget(event.session)
                raise
            return session

    def touch(self, session: str) -> None:
        """A session is in use: it is the last to go where there are too many."""
        if self.sessions.use(session):
            self.latest = session

    def take(self, event: Event) -> None:
        """Write an event down, let it happen, and tell of it.

        Raises `JournalError` where it cannot be written: then it has not happened; only the end of
        a call counts all the same. One that is written has happened, anchored or not.
        """
        try:
            if self.journal is not None:
                self.journal.write(event)
        except JournalError:
            if isinstance(event, (Released, Ended)):
                self.world.fold(event)
            raise
        except StoreError as error:
            warn(f"an event of session {event.session!r} is written, and not anchored: {error}")
        self.world.fold(event)
        self._listeners.tell(event)

    def end(self, event: Closed) -> None:
        """A session is over: write that down, let its id be opened anew, and tell of it."""
        try:
            if self.journal is not None:
                self.journal.write(event)
        finally:
            self.sessions.forget(event.session)
            self._listeners.tell(event)

    def constraints(self) -> tuple[Constraint, ...]:
        """What has been learned and holds, the latest confirmed last.

        What other processes have learned and revoked is seen at once: `StoreError` where the
        store cannot be looked at.
        """
        with self.lock:
            if self.keeper is not None and not self.closed:
                self.keeper.look()
            return tuple(sorted(self.world.memory, key=lambda one: one.confirmed_at or 0))

    def revoke(self, id: str, *, by: str) -> bool:  # noqa: A002 - the constraint's own word
        """Take a constraint back, for every process that keeps the same store.

        It is not learned again. Returns whether there was one, in the store too. `by` names who
        revokes. `StoreError` where the store does not take it: then it is not revoked, and the
        call may be repeated. `RuntimeError` where the guard is closed.
        """
        with self.lock:
            if self.closed:
                raise RuntimeError("the guard is closed: load another to revoke constraints")
            if self.keeper is not None:
                self.keeper.look()
            if self.world.memory.get(id) is None:
                return False
            if self.keeper is not None:
                self.keeper.revoke(id, by=by, at=self.clock())
            else:
                self.world.memory.revoke(id)
            return True

    def snapshot(self) -> bytes:
        """What has been learned, evidence included, as JSON: for `restore`.

        The key of its fingerprints is in it: keep it as private as the arguments of the calls.
        """
        with self.lock:
            return snapshots.take(self.world.memory, self._fingerprinter.key)

    def restore(self, snapshot: bytes) -> None:
        """Add what another guard has learned, before any session is opened.

        What was revoked, there or here, stays so. With a store it is written there, but for
        revocations of what the store does not know, which this guard remembers.
        `ValueError` for what is no snapshot, and where this guard's fingerprints have another key
        already: it keeps a store of its own, or has open sessions.
        """
        with self.lock:
            read = snapshots.read(snapshot)
            if read.key != self._fingerprinter.key:
                if self.keeper is not None or self.sessions:
                    raise ValueError(
                        "this guard's fingerprints have a key of their own; "
                        "restore into a guard without a store, before its first session"
                    )
                self._fingerprinter.rekey(read.key)
            snapshots.restore(self.world.memory, read)
            if self.keeper is not None:
                self.keeper.restore(read, self.clock())

    def tool(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function so that each call of it is checked and recorded.

        The call belongs to the session of the surrounding `with guard.session(...):`. A refused
        call raises `CallRefused`, one that runs out of time `ToolTimeoutError`. For plain and for
        async functions, and for methods (`self` is no argument of the call); `TypeError` for what
        cannot be a tool, such as a generator.
        """
        return guarded(self, fn)

    def _hearing(self) -> None:
        """Note who is told what happens: with `anchor` it is written down for good."""
        journal, listeners = self.journal, self._listeners
        self.emit: Callable[[Event, bool], None] = self._tell
        self.teller: Teller | None = Teller(self._tell) if listeners.any else None
        if journal is not None and not listeners.any:
            self.emit = journal.write
            self.teller = _scribe(journal, self.evaluator.bounds.plans)

    def _tell(self, event: Event, anchor: bool) -> None:
        if self.journal is not None:
            self.journal.write(event, anchor)
        self._listeners.tell(event)


def _scribe(journal: Journal, plans: int) -> Teller:
    from policyguard.guard.scribe import Scribe  # only who keeps something writes journals

    return Scribe(journal, plans)


def _journal(compiled: Compiled, store: Store, now: int, key: bytes | None) -> Journal | None:
    from policyguard.guard.log import journal_of  # only who keeps something writes journals

    return journal_of(compiled, store, now, key)


def _key(file: str | Path, store: Store | None) -> bytes:
    from policyguard.guard.log import key_of  # as above

    if store is None:
        raise ValueError("`journal_key` is for journals, which stand beside a store: give `store`")
    return key_of(file)
