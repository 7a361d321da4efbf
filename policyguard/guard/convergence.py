"""Where a session's progress comes from: part of the fold, seen as `session.progress`."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.session import PROGRESSING, SessionState
from policyguard.learned.progress import Course
from policyguard.model.event import Refused
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Learn, Policy


class Convergence:
    """Keeps `facts["progress"]` of sessions in step with their events.

    A policy that does not learn bans nothing: its sessions have scores, and no search space.
    """

    def __init__(self, policy: Policy) -> None:
        self._aim = policy.progress
        self._space = policy.progress.space
        self._learns = policy.learn is not None
        self._unit = _unit(policy.learn)
        self._by_call = self._unit not in ("tool", "class")
        self._resets = policy.learn is not None and policy.learn.reset_on != "none"

    def admit(self, attempt: Attempt) -> None:
        """A call was let through: its way is not banned, or on trial."""
        if not self._learns:
            return
        course: Course | None = attempt.session.course
        way = attempt.fingerprint if self._by_call else self._way(attempt)
        if course is None or course.banned:
            self._meet(attempt.session, way, banned=False)
        else:  # only scores matter, and they have not changed
            met = course.met
            met.append(way)
            if len(met) > self._space:
                del met[0]

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call was refused: by a constraint, which bans its way, or by something else.

        The latter says of a way that is known that no constraint bans it. It is no new way.
        """
        if not event.fingerprint:  # not judged: constraints were not asked
            return
        way = self._way(event)
        banned = any(id_.startswith("constraints/") for id_ in event.violations)
        if banned or way in self._course(session).met:
            self._meet(session, way, banned=banned)

    def complete(self, attempt: Attempt, outcome: Outcome, *, taught: bool) -> None:
        """A call has its outcome; `taught`: it has taught or confirmed a constraint."""
        session = attempt.session
        if taught:
            self._meet(session, self._way(attempt), banned=True)
        changed = outcome.state == "success" and attempt.changing and self._resets
        if outcome.score is None and not changed:
            return
        course = self._course(session)
        course.score(self._aim, outcome.score)
        if changed:
            course.lift()
        session.facts["progress"] = course.standing(self._aim)

    def _meet(self, session: SessionState, way: str, *, banned: bool) -> None:
        course = self._course(session)
        course.meet(self._aim, way, banned=banned)
        facts = session.facts
        # Without bans only scores matter, and they have not changed.
        if course.banned or facts["progress"] != PROGRESSING:
            facts["progress"] = course.standing(self._aim)

    def _course(self, session: SessionState) -> Course:
        course: Course | None = session.course
        if course is None:
            course = session.course = Course()
        return course

    def _way(self, call: Attempt | Refused) -> str:
        if self._unit == "tool":
            return call.tool
        return (call.class_ if self._unit == "class" else "") or call.fingerprint


def _unit(learn: Learn | None) -> str | None:
    """What bans are about, where that is wider than a call and can be told beforehand."""
    return learn.ban if learn is not None and learn.key is None else None
