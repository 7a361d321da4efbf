"""A candidate policy: evaluated live beside the enforced one, without acting.

It follows the events of a guard, after each decision, through the code of replays: calls that were
admitted count in its own state, calls that were refused do not, whatever it would have decided.
"""

from __future__ import annotations

from policyguard.compiler import CompiledPolicy
from policyguard.evaluator.evaluation import ApproverPresence, GuardMode
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.guard.host_log import log_failure
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.guard.sessions.opening import start_session
from policyguard.model.decision import Decision
from policyguard.model.event import (
    Admitted,
    CandidateDiffered,
    ChildCharged,
    Completed,
    Event,
    Refused,
    SessionEnded,
    SessionStarted,
)


class CandidateSession:
    """A session under the candidate.

    `is_partial`: the candidate lacks some of it. `has_diverged`: an earlier call ran, or did not,
    against what the candidate would have decided.
    """

    __slots__ = ("has_diverged", "is_partial", "replay")

    def __init__(self, replay: ReplaySession, *, is_partial: bool) -> None:
        self.replay = replay
        self.is_partial = is_partial
        self.has_diverged = False


class Candidate:
    """A compiled policy with the state of the sessions that it follows.

    `enforced` is the state of the enforced policy: grants lift *ask* of either.
    """

    def __init__(
        self, compiled: CompiledPolicy, enforced: EvaluatorState, presence: ApproverPresence
    ) -> None:
        self._compiled = compiled
        self._guard = ReplayGuard(compiled)
        self._guard._mode = GuardMode(compiled.evaluator.observe_only, presence)
        self._guard._state.evaluator_state.grants = enforced.grants
        self._states = enforced.sessions
        self._sessions: dict[str, CandidateSession] = {}

    def rekey(self, key: bytes) -> None:
        """Use the enforced policy's key of fingerprints, so that its approvals hold here too."""
        self._compiled.fingerprinter.rekey(key)

    def follow(self, event: Event) -> CandidateDiffered | None:
        """Follow an event. Return how the decision on a call differs; it never raises."""
        try:
            return self._follow(event)
        except Exception:  # noqa: BLE001 - whatever fails here must not reach the call
            log_failure(f"the candidate policy failed on {type(event).__name__}")
            session = self._sessions.get(event.session)
            if session is not None:
                session.is_partial = True
            return None

    def _follow(self, event: Event) -> CandidateDiffered | None:
        if isinstance(event, ChildCharged):
            return None
        session = self._sessions.get(event.session)
        if session is None or session.replay.closed:
            session = self._open(event)
        match event:
            case SessionStarted():
                return None
            case Admitted() | Refused():
                return self._compare(session, event)
            case Completed():
                session.replay.record(event)
            case _:
                session.replay.apply(event)
                if isinstance(event, SessionEnded):
                    del self._sessions[event.session]
        return None

    def _compare(
        self, session: CandidateSession, event: Admitted | Refused
    ) -> CandidateDiffered | None:
        """Evaluate a call; then count it as it was decided."""
        replay, is_admitted = session.replay, isinstance(event, Admitted)
        decision = replay.preview(event)
        if (not is_admitted and not decision.allowed) or (is_admitted and decision.allowed):
            replay.check(event)
        elif is_admitted:
            replay.admit(event, state_changing=False)
        differed = self._describe(session, event, decision)
        session.has_diverged |= decision.allowed is not is_admitted
        return differed

    def _describe(
        self, session: CandidateSession, event: Admitted | Refused, decision: Decision
    ) -> CandidateDiffered | None:
        is_admitted = isinstance(event, Admitted)
        if decision.effect.value == event.effect and decision.allowed is is_admitted:
            return None
        return CandidateDiffered(
            event.session,
            event.at,
            wall=event.wall,
            call=event.call,
            policy=self._compiled.evaluator.name,
            digest=self._compiled.evaluator.digest,
            effect=decision.effect.value,
            violations=tuple([violation.id for violation in decision.violations]),
            enforced=event.effect,
            refused=not decision.allowed,
            errors=tuple([error.id for error in decision.errors]),
            counterfactual=session.has_diverged,
            partial=session.is_partial,
        )

    def _open(self, event: Event) -> CandidateSession:
        """Start to follow a session, from its start or, if it was resumed, from now on."""
        is_partial = not isinstance(event, SessionStarted)
        started = event if isinstance(event, SessionStarted) else self._describe_start(event)
        declared = self._compiled.policy.tags
        tags = {name: value for name, value in started.tags.items() if name in declared}
        try:
            tags = self._compiled.evaluator.check_tags(tags)
        except ValueError:
            is_partial = True
        fields = {name: getattr(started, name) for name in started.__struct_fields__}
        started = SessionStarted(**{**fields, "tags": tags})
        replay = ReplaySession(start_session(self._guard, started))
        session = self._sessions[event.session] = CandidateSession(replay, is_partial=is_partial)
        for id_ in [id_ for id_, other in self._sessions.items() if other.replay.closed]:
            del self._sessions[id_]
        return session

    def _describe_start(self, event: Event) -> SessionStarted:
        """Return a start for a session that began before the candidate followed it."""
        state = self._states.get(event.session)
        if state is None:
            return SessionStarted(event.session, event.at)
        variables, keys = state.cel_session, state.scope_keys
        parent = state.parent.id if state.parent is not None else ""
        return SessionStarted(
            event.session,
            event.at,
            parent=parent if parent in self._sessions else "",
            agent=state.agent,
            user=keys["user"],
            roles=tuple(variables["roles"]),
            project=keys["project"],
            cwd=variables["cwd"],
            tags=dict(variables["tags"]),
        )
