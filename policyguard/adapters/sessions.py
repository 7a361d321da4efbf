"""The sessions that a service or a one-shot command uses, found by what a request says of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from policyguard.adapters.waiting import Answers, Hold, StillWaiting, current_hold
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.outcome import Recorded

_Key = tuple[str, str, str, str, str | None]


class SessionRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request on one session, opened or resumed with these facts if it is not open.

    `session`, `agent`, `user`, `project` and `parent` are as in `Guard.session`; a `parent` that is
    not open is resumed, or opened with the same user and project. A session that exists keeps the
    `roles`, `cwd` and `session_tags` that it was first opened with.
    """

    session: str
    agent: str = ""
    user: str = ""
    project: str = ""
    parent: str | None = None
    roles: list[str] = []
    cwd: str | None = None
    session_tags: dict[str, Any] = {}


class SessionAnswer(msgspec.Struct, kw_only=True):
    """An open session."""

    session: str
    parent: str | None
    agent: str
    user: str
    project: str
    calls: int
    in_flight: int
    disabled: dict[str, str]


class Observer(Protocol):
    """Learns of each decision and result, to count them."""

    def note_decision(self, decision: Decision) -> None:
        """Count a decision."""

    def note_result(self, recorded: Recorded) -> None:
        """Count a result."""


class ServedSessions:
    """The sessions of a guard, by what requests say of them.

    Of the calls it keeps those whose decision waits for an approval (`asked`), and the ids of the
    latest ones. `bounds.sessions` of the policy bounds each.
    """

    def __init__(self, guard: Guard, observer: Observer | None = None) -> None:
        self.guard = guard
        self._observer = observer
        self._max_kept = guard._evaluator.bounds.sessions
        self._opened: OrderedDict[_Key, Session] = OrderedDict()
        self.asked: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._answers: Answers | None = None
        self._answers_lock = threading.Lock()

    def get_open(self, request: SessionRequest) -> Session | None:
        """Return the session of a request if it is open; opening it may take a while."""
        session = self._opened.get(_key(request))
        return None if session is None or session.closed else session

    def open(self, request: SessionRequest) -> Session:
        """Return the session of a request, opened or resumed if need be.

        Raises what `Guard.session` raises.
        """
        session = self.get_open(request)
        if session is not None:
            return session
        guard = self.guard
        if request.parent:
            guard.session(request.parent, user=request.user, project=request.project)
        session = guard.session(
            request.session,
            parent=request.parent or None,
            agent=request.agent,
            user=request.user,
            roles=request.roles,
            project=request.project,
            cwd=request.cwd,
            tags=request.session_tags,
        )
        self._opened[_key(request)] = session
        _trim(self._opened, self._max_kept)
        return session

    def list(self) -> list[SessionAnswer]:
        """Return the sessions that are open here."""
        sessions = {session.id: session for session in [*self._opened.values()]}
        return [describe_session(session) for session in sessions.values() if not session.closed]

    @property
    def allows_on_error(self) -> bool:
        """Whether calls run on which policyguard itself fails."""
        return self.guard._mode.observe or self.guard._evaluator.allow_on_internal_error

    def check(
        self,
        session: Session,
        tool: str,
        args: Mapping[str, Any],
        call: str | None,
        *,
        may_be_repeated: bool = True,
        **options: Any,
    ) -> Decision:
        """Check a call. Raises what `Session.check` raises.

        One whose answer was lost and that is in flight already is not counted again, if it
        `may_be_repeated`. Where the request may wait (`waiting.holding`), so does a call that needs
        an approval, and is checked again once it has its answer; `StillWaiting` if it has none in
        time and the request will be repeated.
        """
        if call and may_be_repeated and call in session.in_flight:
            repeated = session.preview(tool, args, **options)
            if repeated.fingerprint == session.in_flight[call]:
                return Decision(call, session.id, tool, Effect.ALLOW, True)
        hold = current_hold()
        decision: Decision | None = None
        if hold is not None and hold.is_repeated:
            decision = self._find_asked_again(session, tool, args, options)
        if decision is None:
            decision = self._check(session, tool, args, call, options)
        if decision.effect is Effect.ASK and hold is not None:
            return self._await_answer(session, decision, hold, tool, args, call, options)
        return decision

    def _check(
        self,
        session: Session,
        tool: str,
        args: Mapping[str, Any],
        call: str | None,
        options: dict[str, Any],
    ) -> Decision:
        decision = session.check(tool, args, call=call, **options)
        if call:
            self._note_seen(session.id, call)
        if decision.effect is Effect.ASK:
            self._note_asked(decision, call or decision.id)
        if self._observer is not None:
            self._observer.note_decision(decision)
        return decision

    def _find_asked_again(
        self, session: Session, tool: str, args: Mapping[str, Any], options: dict[str, Any]
    ) -> Decision | None:
        """Return the decision on a call that still waits, and is only sent again."""
        found = session.preview(tool, args, **options)
        if found.effect is not Effect.ASK:
            return None
        return next(
            (
                asked
                for (owner, _), asked in reversed(self.asked.items())
                if owner == session.id and asked.fingerprint == found.fingerprint
            ),
            None,
        )

    def _await_answer(
        self,
        session: Session,
        decision: Decision,
        hold: Hold,
        tool: str,
        args: Mapping[str, Any],
        call: str | None,
        options: dict[str, Any],
    ) -> Decision:
        """Wait until a call that was asked about is answered, and check it again then."""
        answers = self._open_answers()
        while True:
            seen = answers.count(session.id)
            if session.preview(tool, args, **options).effect is not Effect.ASK:
                return self._check(session, tool, args, call, options)
            if not answers.wait(session.id, seen, hold.until):
                if hold.is_last:
                    return decision
                raise StillWaiting

    def _open_answers(self) -> Answers:
        with self._answers_lock:
            if self._answers is None:
                self._answers = Answers(self.guard)
            return self._answers

    def end_waiting(self) -> None:
        """Let every request that waits for an answer go on without one."""
        self._open_answers().end()

    def record(self, session: Session, call: str, **result: Any) -> Recorded:
        """Report a result. Raises what `Session.record` raises."""
        recorded = session.record(call, **result)
        if self._observer is not None:
            self._observer.note_result(recorded)
        return recorded

    def _note_asked(self, decision: Decision, call: str) -> None:
        """Keep a decision that waits for an approval."""
        self.asked[decision.session, call] = decision
        _trim(self.asked, self._max_kept)

    def _note_seen(self, session: str, call: str) -> None:
        """Remember that a call was checked."""
        self._seen[session, call] = None
        _trim(self._seen, self._max_kept)

    def has_seen(self, session: str, call: str) -> bool:
        """Whether a call was checked here lately."""
        return (session, call) in self._seen


def _key(request: SessionRequest) -> _Key:
    return request.session, request.agent, request.user, request.project, request.parent


def _trim(kept: OrderedDict[Any, Any], max_kept: int) -> None:
    while len(kept) > max_kept:
        kept.popitem(last=False)


def describe_session(session: Session) -> SessionAnswer:
    """Return what a session is and has."""
    state = session._state
    return SessionAnswer(
        session=session.id,
        parent=None if state.parent is None else state.parent.id,
        agent=state.scope_keys["agent"],
        user=state.scope_keys["user"],
        project=state.scope_keys["project"],
        calls=state.cel_session["calls"],
        in_flight=len(session.in_flight),
        disabled=session.disabled,
    )
