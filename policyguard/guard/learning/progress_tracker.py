"""Tracks the progress of sessions, for `session.progress`: part of the fold."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.session_state import PROGRESSING, SessionState
from policyguard.learned.progress import SearchProgress
from policyguard.model.event import Refused
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Learn, Policy


class ProgressTracker:
    """Updates `cel_session["progress"]` of sessions with each event.

    Without `learn` nothing is banned: sessions have scores, and no search space. It
    `tracks_identity` where candidates are calls, by their fingerprints.
    """

    def __init__(self, policy: Policy) -> None:
        self._settings = policy.progress
        self.tracks_calls = policy.learn is not None
        self._ban_unit = _ban_unit_of(policy.learn)
        self.tracks_identity = self._ban_unit not in ("tool", "class")
        self._resets_on_change = policy.learn is not None and policy.learn.reset_on != "none"

    def admit(self, attempt: Attempt) -> None:
        """Note an admitted call: its candidate is not banned, or is being probed."""
        progress: SearchProgress | None = attempt.session.search_progress
        if progress is None or progress.banned:
            self._visit(attempt.session, self._candidate_id(attempt), banned=False)
        else:  # only scores matter, and they have not changed
            progress.visited.append(self._candidate_id(attempt))

    def refuse(self, session: SessionState, event: Refused) -> None:
        """Note a refused call: a constraint bans its candidate, or something else refused it.

        The latter shows that no constraint bans a known candidate; it adds no new one.
        """
        if not event.fingerprint:  # not evaluated: constraints were not checked
            return
        candidate = self._candidate_id(event)
        banned = any(id_.startswith("constraints/") for id_ in event.violations)
        if banned or candidate in self._search_progress(session).visited:
            self._visit(session, candidate, banned=banned)

    def complete(self, attempt: Attempt, outcome: Outcome, *, taught: bool) -> None:
        """Note an outcome; with `taught` it has added or confirmed a constraint."""
        session = attempt.session
        if taught:
            self._visit(session, self._candidate_id(attempt), banned=True)
        changed = outcome.state == "success" and attempt.state_changing and self._resets_on_change
        if outcome.score is None and not changed:
            return
        progress = self._search_progress(session)
        progress.add_score(self._settings, outcome.score)
        if changed:
            progress.clear_bans()
        session.cel_session["progress"] = progress.status(self._settings)

    def _visit(self, session: SessionState, candidate: str, *, banned: bool) -> None:
        progress = self._search_progress(session)
        progress.visit(candidate, banned=banned)
        cel_session = session.cel_session
        # Without bans only scores matter, and they have not changed.
        if progress.banned or cel_session["progress"] != PROGRESSING:
            cel_session["progress"] = progress.status(self._settings)

    def _search_progress(self, session: SessionState) -> SearchProgress:
        progress: SearchProgress | None = session.search_progress
        if progress is None:
            progress = session.search_progress = SearchProgress.begin(self._settings)
        return progress

    def _candidate_id(self, call: Attempt | Refused) -> str:
        if self._ban_unit == "tool":
            return f"{call.server}\x1f{call.tool}"
        return (call.class_ if self._ban_unit == "class" else "") or call.fingerprint


def _ban_unit_of(learn: Learn | None) -> str | None:
    """Return what bans cover, if it is known without evaluating a key."""
    return learn.ban if learn is not None and learn.key is None else None
