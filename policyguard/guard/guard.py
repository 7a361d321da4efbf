"""A compiled policy in force, and its sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.evaluator.evaluation import GuardMode
from policyguard.guard import validate
from policyguard.guard.approvals.approver import Approver, check_approver
from policyguard.guard.calls.events import CallEventEmitter, CandidateEmitter, FastCallEmitter
from policyguard.guard.clock import open_steady_clock
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard_records import GuardRecords
from policyguard.guard.guard_state import GuardState
from policyguard.guard.host_log import warn
from policyguard.guard.listeners import Listener, Listeners
from policyguard.guard.session import Session
from policyguard.guard.sessions.lifetime import SessionLifetime
from policyguard.guard.sessions.open_sessions import OpenSessions
from policyguard.guard.sessions.opening import find_session
from policyguard.guard.tools.receivers import GuardedTools
from policyguard.journal.errors import JournalError
from policyguard.model.errors import ClosedError
from policyguard.model.event import CallEnded, Event, Released, SessionEnded, SessionStarted
from policyguard.store import fork_safety
from policyguard.store.errors import SessionBusyError, StoreError
from policyguard.store.paths import is_database_address, resolve_store_path

if TYPE_CHECKING:
    from policyguard.guard.approvals.grant_sync import GrantSync
    from policyguard.guard.budgets.shared import SharedBudgets
    from policyguard.guard.candidate import Candidate
    from policyguard.guard.journals.anchoring import JournalAnchoring
    from policyguard.guard.journals.retention import JournalRetention
    from policyguard.guard.learning.constraint_sync import ConstraintSync
    from policyguard.guard.stored_marks import StoredMarks
    from policyguard.journal.journal import Journal
    from policyguard.store.protocol import Store

P = ParamSpec("P")
R = TypeVar("R")


class Guard(GuardRecords):
    """A policy in force, for many sessions and threads. As a context manager it is closed.

    One lock makes checks atomic: a call that is admitted is counted before the next is decided.
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
        journal: str | Path | None = None,
        journal_key: str | Path | None = None,
        candidate: CompiledPolicy | None = None,
    ) -> None:
        """Do as `load` does with a compiled policy. The caller closes `store`."""
        if not isinstance(compiled, CompiledPolicy):
            raise TypeError(f"a guard is made by `Guard.load`, not from {compiled!r:.40}")
        validate.clock_time(clock)
        if approver is not None:
            check_approver(approver)
        validate.store(store)
        if store is not None or journal is not None or journal_key is not None:
            from policyguard.guard.journals import setup

            location = setup.locate_journal(store, journal, journal_key)  # before any file is made
        self._fingerprinter = compiled.fingerprinter
        if store is not None:
            self._fingerprinter.rekey(store.fingerprint_key)
        self._evaluator = compiled.evaluator
        self._approvals = compiled.policy.approvals
        self.diagnostics = compiled.diagnostics
        self._steady_clock = open_steady_clock(clock, store)
        self._lock = threading.RLock()
        fork_safety.guard_locks.add(self._lock)
        self._state = GuardState(compiled)
        self._constraint_sync: ConstraintSync | None = None
        self._grant_sync: GrantSync | None = None
        self._stored_marks: StoredMarks | None = None
        if store is not None:
            from policyguard.guard.approvals.grant_sync import GrantSync  # not needed in memory
            from policyguard.guard.learning.constraint_sync import ConstraintSync

            key = location.key or store.fingerprint_key
            self._grant_sync = GrantSync(store, self._state.evaluator_state.grants, key)
            constraint_set = self._state.constraint_set
            self._constraint_sync = ConstraintSync(store, constraint_set, self._steady_clock)
            self._state.learner.use_shared_store()
            marks = self._state.evaluator_state.marks
            if marks is not None and marks.has_shared:
                from policyguard.guard.stored_marks import StoredMarks  # most policies have none

                self._stored_marks = marks.shared = StoredMarks(
                    store, marks.marks, self._steady_clock, key, marks.max_scopes
                )
        self._closed_lock, self._closed_sessions = threading.Lock(), None
        self._journal: Journal | None = None
        self._journal_retention: JournalRetention | None = None
        self._journal_anchoring: JournalAnchoring | None = None
        if store is not None:
            self._journal = setup.open_journal(compiled, store, location, self._state.host_reports)
            self._journal_retention = setup.apply_retention(
                compiled, store, location, self._steady_clock
            )
        if self._journal is not None and self._journal.is_shared:
            from policyguard.guard.journals.anchoring import JournalAnchoring  # most have none

            self._journal_anchoring = JournalAnchoring(self)
            self._journal.on_lost = self._journal_anchoring.drop
        self._shared_budgets: SharedBudgets | None = None
        budgets = self._evaluator.budgets.values()
        if store is not None and any(budget.is_shared for budget in budgets):
            from policyguard.guard.budgets.shared import SharedBudgets

            self._shared_budgets = self._state.shared_budgets = SharedBudgets(
                store.quotas, self._evaluator, self._state.evaluator_state.ledger
            )
        self._exit_stack = ExitStack()
        if self._shared_budgets is not None:
            self._exit_stack.callback(self._shared_budgets.close)
        if self._stored_marks is not None:
            self._exit_stack.callback(self._stored_marks.save)
        self._approver = approver
        self._mode = GuardMode(
            observe or compiled.evaluator.observe_only, "present" if approver else "absent"
        )
        self._candidate: Candidate | None = None
        if candidate is not None:
            from policyguard.guard.candidate import Candidate  # most guards have none

            presence = self._mode.approver_presence
            self._candidate = Candidate(candidate, self._state.evaluator_state, presence)
            self._candidate.rekey(self._fingerprinter.key)
        self._listeners = Listeners()
        if listener is not None:
            self._listeners.add(listener, ())
        self._update_emitters()
        self._tools = GuardedTools(compiled.evaluator.bounds)
        self._latest_session = ""
        self._may_block = store is not None
        self.closed = False
        self._open_sessions = OpenSessions(
            self._state.evaluator_state.sessions,
            store,
            self._evaluator.bounds.sessions,
            self._lock,
        )
        if store is not None:
            from policyguard.guard.at_exit import close_at_exit

            close_at_exit(self)

    @classmethod
    def load(
        cls,
        policy: str | Path | Iterable[str | Path] | CompiledPolicy,
        *,
        store: Store | str | Path | None = None,
        clock: Callable[[], int] = time.time_ns,
        listener: Listener | None = None,
        approver: Approver | None = None,
        journal: str | Path | None = None,
        journal_key: str | Path | None = None,
        cache: bool | None = None,
        candidate: str | Path | Iterable[str | Path] | None = None,
    ) -> Guard:
        """Check and compile a policy: a pack's name (`core`), a file, or several (the last wins).

        One that is compiled already is taken as it is.

        `store`: where state lasts, a SQLite file (with journals in a folder beside it), a
        PostgreSQL database (`postgresql://…`) or a store; with None no state is written. `journal`:
        the folder of the journals of a store that is no file, which has none without. `clock`
        returns nanoseconds since 1970 (UTC). `listener`: see `on`. `approver` is called with the
        session and the decision when `check` decides *ask*: it may call `session.approve` at once,
        or arrange that someone does later. Its return value is ignored; its error is logged and put
        into the decision's `errors`, and the call stays refused. Without an approver, a rule's
        `approval.otherwise` applies. `journal_key`: the path of a file with a key (16 bytes or
        more) for the journals' hashes, as for `policyguard journal verify --key`. `cache`: whether
        to keep the compiled policy in a folder of the user, by default where a forged copy could
        change nothing that the user cannot change anyway: who may write the policy, or policyguard.
        `candidate`: another policy that is evaluated beside this one and changes nothing; where it
        would have decided otherwise, the journal and listeners get a `CandidateDiffered`.

        Raises `PolicyError` with all diagnostics of a wrong policy, `StoreError` or `JournalError`
        if the store, the journals or the key cannot be used, `TypeError` for a wrong value, and
        `ValueError` for a key without journals or a folder for a store that has one.
        """
        if isinstance(store, (str, Path)) and not is_database_address(store):
            resolve_store_path(store)  # before the cache is written
        if isinstance(policy, CompiledPolicy):
            compiled = policy
        else:
            compiled = compile_policy(policy, cache=cache)
        compiled_candidate = None if candidate is None else compile_policy(candidate, cache=cache)
        opened: Store | None
        if isinstance(store, (str, Path)):
            from policyguard.guard.learning.constraint_sync import open_store

            opened = open_store(store, compiled.policy)
        else:
            opened = store
        guard = cls(
            compiled,
            clock=clock,
            listener=listener,
            store=opened,
            approver=approver,
            journal=journal,
            journal_key=journal_key,
            candidate=compiled_candidate,
        )
        if opened is not None and opened is not store:
            guard._exit_stack.callback(opened.close)
        return guard

    def close(self) -> None:
        """Release the guard's sessions and files, and its store if `load` opened it.

        This ends no session: another guard may resume them. Here they refuse all calls, and no
        session can be opened. Raises `StoreError` or `JournalError` if something could not be
        written; everything else is released all the same.
        """
        with self._lock, self._exit_stack as exit_stack:
            self.closed = True
            self._open_sessions.detach_all(exit_stack)
            if self._journal is not None:
                exit_stack.callback(self._journal.close)
            self._journal = None
            if self._journal_retention is not None:
                exit_stack.callback(self._journal_retention.close)
            if self._journal_anchoring is not None:
                self._journal_anchoring.close()
            self._update_emitters()

    async def aclose(self) -> None:
        """Do as `close` does, off the event loop, once the async listeners have all events."""
        await run_blocking(self, self.close)
        await self._listeners.drain()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        sessions = len(self._open_sessions)
        return f"<Guard policy={self.policy!r} {sessions=}{' closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on(self, listener: Listener, *event_types: type[Event]) -> Callable[[], None]:
        """Call `listener` with every event from now on, or with those of some classes.

        The classes are exported by `policyguard`, such as `Refused`. A plain listener is called in
        order under the guard's lock, and should be quick; an async one is awaited on the event
        loop, one event at a time. Its errors are logged. Returns a function that removes it.
        """
        remove = self._listeners.add(listener, event_types)
        self._update_emitters()
        return remove

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self._evaluator.name

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the policy's layers and of the environment variables that it reads."""
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
        """Open or resume a session, or return the open one with this id.

        `parent`: the session of the agent that spawned this one. Calls here charge its budgets too,
        and it closes and ends this one with itself; a parent that is not open is resumed first.
        `tags`: values of the tags that the policy declares; others are ignored, since a host may
        serve several policies. None means unknown. Lone surrogates in names are escaped. A session
        that exists keeps the roles, folder and tags that it was first opened with. Inside an event
        loop, a session with a store is opened when it is first used or entered.

        `ValueError` if the session has another user, agent, project or parent, if its parent is
        closed, of another guard or cannot be resumed, and for missing or wrong tags. `ClosedError`
        if the guard is closed, `SessionLimitError` if it has no room for a session beside its
        ancestors. With a store: `SessionBusyError` if the session is open in another process or
        guard, `AlteredError` if its journal was altered, `JournalError` and `StoreError` if
        something cannot be read or written.
        """
        started = SessionStarted(
            session=validate.identifier("id", validate.text("id", id)),
            agent=validate.identifier("agent", agent),
            user=validate.identifier("user", user),
            roles=validate.text_list("roles", roles),
            project=validate.identifier("project", project),
            cwd=validate.path("cwd", cwd),
        )
        return find_session(self, started, parent, validate.mapping("tags", tags))

    def _close_session(self, session: SessionLifetime) -> None:
        """Close a session; without a journal its state stays here."""
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

    def _mark_used(self, session: str) -> None:
        """Make a session the last to be evicted."""
        if self._open_sessions.mark_used(session):
            self._latest_session = session

    def _apply(self, event: Event) -> None:
        """Write an event, fold it, and notify listeners.

        Raises `JournalError` if it cannot be written: then it is not folded, unless it ends a call.
        An event that is written counts, even if it cannot be anchored.
        """
        try:
            self._events.write(event)
        except JournalError:
            if isinstance(event, (Released, CallEnded)):
                self._state.fold(event)
            raise
        except SessionBusyError:  # let go of already
            raise ClosedError(f"session {event.session!r:.80} is another process's now") from None
        except StoreError as error:
            warn(f"an event of session {event.session!r} is written, but not anchored: {error}")
        self._state.fold(event)
        self._events.notify(event)

    def _end_session(self, event: SessionEnded) -> None:
        """Write the end of a session, forget the session, and notify listeners."""
        with ExitStack() as exit_stack:
            exit_stack.callback(self._events.notify, event)
            exit_stack.callback(self._open_sessions.remove, event.session)
            exit_stack.callback(self._forget_grants, event.session)
            if self._constraint_sync is not None and self._state.learns:
                exit_stack.callback(self._constraint_sync.forget_session, event.session)
            self._events.write(event)

    def tool(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function so that its calls are checked and recorded.

        They belong to the session of the surrounding `with guard.session(...):` block. A refused
        call raises `CallRefused`, one that runs out of time `ToolTimeoutError`. Works for plain and
        async functions and methods (`self` is not an argument of the call); `TypeError` for
        others, such as generators.
        """
        from policyguard.guard.tools.decorator import guard_tool  # a check does not need it

        return guard_tool(self, fn)

    def _update_emitters(self) -> None:
        """Choose how events go out: without listeners, ordinary calls need none."""
        journal, listeners, candidate = self._journal, self._listeners, self._candidate
        self._has_audience = bool(journal or listeners.has_listeners or candidate)
        self._events = CallEventEmitter(journal, listeners)
        if candidate is not None:
            self._events = CandidateEmitter(journal, listeners, candidate)
        elif journal is not None and not listeners.has_listeners:
            self._events = FastCallEmitter(journal, listeners, self._evaluator.bounds.plans)
