"""Where a session's progress comes from: part of the fold, seen as `session.progress`."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.session_state import PROGRESSING, SessionState
from policyguard.learned.progress import SearchProgress
from policyguard.model.event import Refused
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Learn, Policy


class ProgressTracker:
    """Keeps `facts["progress"]` of sessions in step with their events.

    A policy that does not learn bans nothing: its sessions have scores, and no search space.
    """

    def __init__(self, policy: Policy) -> None:
        self._settings = policy.progress
        self._max_candidates = policy.progress.space
        self._has_learning = policy.learn is not None
        self._ban_unit = _ban_unit_of(policy.learn)
        self._by_call = self._ban_unit not in ("tool", "class")
        self._resets_on_change = policy.learn is not None and policy.learn.reset_on != "none"

    def admit(self, attempt: Attempt) -> None:
        """A call was let through: its way is not banned, or on trial."""
        if not self._has_learning:
            return
        course: SearchProgress | None = attempt.session.search_progress
        way = attempt.fingerprint if self._by_call else self._candidate_id(attempt)
        if course is None or course.banned:
            self._visit(attempt.session, way, banned=False)
        else:  # only scores matter, and they have not changed
            met = course.visited
            met.append(way)
            if len(met) > self._max_candidates:
                del met[0]

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call was refused: by a constraint, which bans its way, or by something else.

        The latter says of a way that is known that no constraint bans it. It is no new way.
        """
        if not event.fingerprint:  # not judged: constraints were not asked
            return
        way = self._candidate_id(event)
        banned = any(id_.startswith("constraints/") for id_ in event.violations)
        if banned or way in self._search_progress(session).visited:
            self._visit(session, way, banned=banned)

    def complete(self, attempt: Attempt, outcome: Outcome, *, taught: bool) -> None:
        """A call has its outcome; `taught`: it has taught or confirmed a constraint."""
        session = attempt.session
        if taught:
            self._visit(session, self._candidate_id(attempt), banned=True)
        changed = outcome.state == "success" and attempt.state_changing and self._resets_on_change
        if outcome.score is None and not changed:
            return
        course = self._search_progress(session)
        course.add_score(self._settings, outcome.score)
        if changed:
            course.clear_bans()
        session.cel_session["progress"] = course.status(self._settings)

    def _visit(self, session: SessionState, candidate: str, *, banned: bool) -> None:
        course = self._search_progress(session)
        course.visit(self._settings, candidate, banned=banned)
        facts = session.cel_session
        # Without bans only scores matter, and they have not changed.
        if course.banned or facts["progress"] != PROGRESSING:
            facts["progress"] = course.status(self._settings)

    def _search_progress(self, session: SessionState) -> SearchProgress:
        course: SearchProgress | None = session.search_progress
        if course is None:
            course = session.search_progress = SearchProgress()
        return course

    def _candidate_id(self, call: Attempt | Refused) -> str:
        if self._ban_unit == "tool":
            return call.tool
        return (call.class_ if self._ban_unit == "class" else "") or call.fingerprint


def _ban_unit_of(learn: Learn | None) -> str | None:
    """What bans are about, where that is wider than a call and can be told beforehand."""
    return learn.ban if learn is not None and learn.key is None else None
