"""What a guard keeps beside the engine's state: what it learned, shared budgets, progress.

`GuardState` applies events through the engine's fold; its `on_` methods are the effects that the
guard adds, in one place for live calls, replays and restores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.messages import build_redactor
from policyguard.evaluator.attempt import Attempt, CallResult
from policyguard.evaluator.evaluator_state import EvaluatorState, TransitionHooks
from policyguard.evaluator.fold import fold, rebuild
from policyguard.evaluator.session_state import SessionState
from policyguard.guard.calls import decisions
from policyguard.guard.host_reports import HostReports
from policyguard.guard.learning.learner import Learner, session_scope
from policyguard.guard.learning.progress_tracker import ProgressTracker
from policyguard.guard.learning.radius_limiter import RadiusLimiter
from policyguard.learned.constraint_set import ConstraintSet, constraint_id
from policyguard.model.constraint import Observation
from policyguard.model.decision import Violation
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Event, Granted, Refused, SessionEnded, Spent

if TYPE_CHECKING:
    from policyguard.guard.budgets.shared import SharedBudgets


class GuardState(TransitionHooks):
    """The engine's state and the learned constraints under one policy.

    `shared_budgets` is None where no budget is shared. Events of a journal are rebuilt: what they
    taught is in the store already, and what they charged to shared budgets too.
    """

    def __init__(self, compiled: CompiledPolicy) -> None:
        self.evaluator = evaluator = compiled.evaluator
        self.evaluator_state = EvaluatorState(
            self, evaluator.bounds.grants, evaluator.new_mark_states()
        )
        self.constraint_set = ConstraintSet(
            max_constraints=evaluator.bounds.constraints, max_evidence=evaluator.bounds.evidence
        )
        self.radius_limiter = RadiusLimiter(compiled.radius)
        self.has_radius = bool(compiled.radius)
        self._progress_tracker = ProgressTracker(compiled.policy)
        self._learn_entries = compiled.learning
        self.redact = build_redactor(compiled.policy)
        """Redacts what stands in messages, and what is shown of calls."""
        self.learner = Learner(
            compiled.learning,
            evaluator.bounds.unreported,
            compiled.fingerprinter.fingerprint_text,
            self.redact,
        )
        self.shared_budgets: SharedBudgets | None = None
        self.host_reports = HostReports()
        self._is_rebuilding = False

    @property
    def learns(self) -> bool:
        """Whether the policy learns anything."""
        return bool(self._learn_entries)

    def fold(self, event: Event) -> None:
        """Apply one event that carries its derived fields. `StoreError` where a grant is lost."""
        fold(self.evaluator, self.evaluator_state, event)

    def rebuild(self, event: Event) -> None:
        """Apply an event of a journal."""
        shared_budgets, self.shared_budgets = self.shared_budgets, None
        self._is_rebuilding = True
        try:
            rebuild(self.evaluator, self.evaluator_state, event)
        finally:
            self._is_rebuilding = False
            self.shared_budgets = shared_budgets

    def check_learned(self, attempt: Attempt) -> list[Violation]:
        """Return the violations of the radius and of learned constraints; note the probes."""
        radius = self.radius_limiter.check(attempt) if self.has_radius else []
        if not self._learn_entries or not self.constraint_set.constraints:
            return radius
        try:
            violations, probes = self.learner.check(self.constraint_set, attempt)
        except ExpressionError as error:
            # Whether a constraint applies is undecidable: that counts for nothing.
            attempt.add_error("learn", error)
            return radius
        if probes:
            attempt.probes = tuple(probes)
        return [*radius, *violations] if radius else violations

    def observe(self, result: CallResult) -> tuple[Observation, ...]:
        """Return what a result teaches: nothing where its failure was inferred from a text."""
        if not self._learn_entries or result.report.provenance != "explicit":
            return ()
        attempt, outcome = result.attempt, result.outcome
        learner, constraint_set = self.learner, self.constraint_set
        if outcome.ok and learner.is_memory_complete:
            if learner.only_call_bans:  # as in `core`; saves a call
                if attempt.fingerprint not in constraint_set.known_calls:
                    return ()
            elif not constraint_set.scope_counts:
                return ()
        return tuple(learner.observe(attempt, outcome))

    def on_admitted(self, attempt: Attempt) -> None:
        """Charge shared budgets, begin probes, track progress."""
        if self.shared_budgets is not None:
            self.shared_budgets.admit(attempt)
        if attempt.probes:
            for id_ in attempt.probes:
                self.constraint_set.begin_probe(id_, attempt.at)
        tracker = self._progress_tracker
        if tracker.tracks_calls:
            progress = attempt.session.search_progress
            if progress is None or progress.banned or not tracker.tracks_identity:
                tracker.admit(attempt)
            else:  # nearly always; saves a call
                progress.visited.append(attempt.fingerprint)

    def forget(self, session: str) -> None:
        """Forget a session as if it had never been opened: its journal has all of it."""
        state = self.evaluator_state.sessions.get(session)
        if state is not None and state.parent is not None:
            state.parent.cel_session["children"] -= 1
        self.rebuild(SessionEnded(session=session))

    def on_refused(self, session: SessionState, event: Refused) -> None:
        """Track progress."""
        self._progress_tracker.refuse(session, event)

    def on_completed(self, result: CallResult) -> list[str]:
        """End probes, charge shared budgets, learn, track radius and progress."""
        attempt, event, outcome = result.attempt, result.report, result.outcome
        if attempt.probes:
            for id_ in attempt.probes:
                self.constraint_set.end_probe(id_)
        if self.shared_budgets is not None:
            self.shared_budgets.complete(attempt, result.charges, event.still_running)
        taught: list[str] = []
        if result.observations:
            confirmed = attempt.session.confirmed_constraints
            for observation in result.observations:
                id_ = self._learn(observation, attempt)
                if id_:
                    taught.append(id_)
                    confirmed[id_] = observation.seq
            while len(confirmed) > self.evaluator.bounds.window_entries:
                del confirmed[next(iter(confirmed))]
        if attempt.radius and event.provenance == "explicit":
            self.radius_limiter.complete(attempt, outcome)
        if taught or event.score is not None or attempt.state_changing:
            self._progress_tracker.complete(attempt, outcome, taught=bool(taught))
        return taught

    def on_timed_out_ended(self, attempt: Attempt) -> None:
        """Free the slots of shared budgets."""
        if self.shared_budgets is not None:
            self.shared_budgets.free_slots(attempt)

    def on_released(self, attempt: Attempt) -> None:
        """End probes, refund shared budgets."""
        for id_ in attempt.probes:
            self.constraint_set.end_probe(id_)
        if self.shared_budgets is not None:
            self.shared_budgets.refund(attempt)

    def on_abandoned(self, attempt: Attempt, at: int | None) -> None:
        """Count what shared budgets reserved for the call as used, and tell a silent host."""
        session = attempt.session
        is_first = attempt.id not in session.in_flight and not session.given_up
        if is_first and not session.state_changes.seq:
            self.host_reports.add(session.id, decisions.NOTHING_REPORTED)
        if self.shared_budgets is not None:
            self.shared_budgets.abandon(attempt, at)

    def on_spent(self, event: Spent) -> None:
        """Charge shared budgets."""
        if self.shared_budgets is not None:
            self.shared_budgets.spend(event)

    def on_ended(self, session: SessionState) -> None:
        """Forget what the session has learned for itself."""
        if self.learns and not self._is_rebuilding:
            self.constraint_set.remove_scope(session_scope(session.id))

    def on_granted(self, session: SessionState, event: Granted) -> None:
        """Raise a shared budget. `StoreError` where that cannot be written."""
        if self.shared_budgets is not None:
            self.shared_budgets.grant(session, event)

    def _learn(self, observation: Observation, attempt: Attempt) -> str:
        """Return the id of the constraint that is taught or confirmed; empty for none."""
        entry = self._learn_entries.get(observation.learn)
        if entry is None:
            return ""
        if self._is_rebuilding:
            id_ = constraint_id(observation)
            constraint = None if observation.ok else self.constraint_set.get(id_)
            return constraint.id if constraint is not None else ""
        return self.constraint_set.learn(
            observation, entry.settings, attempt.session.id, attempt.id, attempt.completed_at
        )
