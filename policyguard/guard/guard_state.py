"""All that a guard knows: the evaluator's state and what has been learned, both folds of events."""

from __future__ import annotations

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.redact_patterns import build_redactor
from policyguard.evaluator import fold as folding
from policyguard.evaluator import transitions
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.rebuild_ledger import RebuildLedger
from policyguard.evaluator.session_state import EngineState, SessionState
from policyguard.guard.learner import Learner
from policyguard.guard.progress_tracker import ProgressTracker
from policyguard.guard.radius_limiter import RadiusLimiter
from policyguard.guard.shared_budgets import SharedBudgets
from policyguard.learned.constraint_set import ConstraintSet, constraint_id
from policyguard.model.constraint import Observation
from policyguard.model.decision import Violation
from policyguard.model.errors import ExpressionError
from policyguard.model.event import (
    Admitted,
    Charge,
    ChildCharged,
    Closed,
    Completed,
    Event,
    Refused,
    Released,
)
from policyguard.model.outcome import Outcome


class GuardState:
    """State and memory under one policy. Live calls and replayed events change them alike."""

    def __init__(self, compiled: CompiledPolicy) -> None:
        self.evaluator = evaluator = compiled.evaluator
        self.engine_state = EngineState()
        self.constraint_set = ConstraintSet(
            max_constraints=evaluator.bounds.constraints, max_evidence=evaluator.bounds.evidence
        )
        self.radius_limiter = RadiusLimiter(compiled.radius)
        self.has_radius = bool(compiled.radius)
        self._progress_tracker = ProgressTracker(compiled.policy)
        self._learn_entries = compiled.learning
        self.learner = Learner(
            compiled.learning,
            evaluator.bounds.unreported,
            compiled.fingerprinter.fingerprint_text,
            build_redactor(compiled.policy),
        )
        self._is_rebuilding = False
        self.shared_budgets: SharedBudgets | None = None

    def fold(self, event: Event) -> None:
        """Bring everything up to date with one event that carries its derived fields."""
        session = self.engine_state.sessions.get(event.session)
        if session is not None:
            match event:
                case Admitted():
                    plan = self.evaluator.plan(
                        event.tool, event.server, session.agent, event.class_
                    )
                    self.admit(transitions.restore_attempt(session, event, plan))
                    return
                case Completed():
                    attempt = session.in_flight.get(event.call)
                    if attempt is not None:
                        at, lessons = session.clamp_time(event.at), event.observations
                        attempt.mark_completed(at)
                        outcome = folding.outcome_from_event(event)
                        self.complete(attempt, event, outcome, event.charges, lessons, at)
                    return
                case Refused():
                    self.refuse(session, event)
                    return
                case Released():
                    attempt = session.in_flight.get(event.call)
                    for id_ in attempt.probes if attempt is not None else ():
                        self.constraint_set.end_probe(id_)
        try:
            if session is not None and self.shared_budgets is not None and not self._is_rebuilding:
                self.shared_budgets.apply(session, event)
        finally:  # an event that a purse could not follow has happened
            folding.fold(self.evaluator, self.engine_state, event)

    def check_learned(self, attempt: Attempt) -> list[Violation]:
        """What has been learned speaks against a call; bans that let it through go on trial."""
        radius = self.radius_limiter.check(attempt) if self.has_radius else []
        if not self._learn_entries or not self.constraint_set.constraints:
            return radius
        try:
            violations, trials = self.learner.check(self.constraint_set, attempt)
        except ExpressionError as error:
            # Whether a constraint binds cannot be told: that is no constraint's evidence.
            attempt.add_error("learn", error)
            return radius
        if trials:
            attempt.probes = tuple(trials)
        return [*radius, *violations] if radius else violations

    def observe(
        self, attempt: Attempt, event: Completed, outcome: Outcome
    ) -> tuple[Observation, ...]:
        """What a result teaches; nothing where its failure was only read out of a text."""
        if not self._learn_entries or event.provenance != "explicit":
            return ()
        if outcome.ok and self.learner.has_nothing_on(
            self.constraint_set, attempt, include_evidence=True
        ):
            return ()
        return tuple(self.learner.observe(self.constraint_set, attempt, outcome))

    def admit(self, attempt: Attempt) -> None:
        """A call takes its place; a ban that let it through is on trial with it."""
        given_up = transitions.admit(self.evaluator, self.engine_state, attempt)
        if self.shared_budgets is not None and not self._is_rebuilding:
            self.shared_budgets.admit(attempt, given_up)
        if attempt.probes:
            for id_ in attempt.probes:
                self.constraint_set.begin_probe(id_, attempt.at)
        self._progress_tracker.admit(attempt)

    def rebuild(self, event: Event) -> None:
        """Fold an event of a journal: what it taught has been learned, what it drew is drawn."""
        book = self.engine_state.ledger
        self._is_rebuilding = True
        self.engine_state.ledger = RebuildLedger(book, self.evaluator.budgets, event.session)
        try:
            if isinstance(event, ChildCharged):
                folding.apply_child_charges(self.evaluator, self.engine_state, event)
            else:
                self.fold(event)
        finally:
            self._is_rebuilding = False
            self.engine_state.ledger = book

    def forget(self, session: str) -> None:
        """Forget a session as if it had never been opened: its journal has all of it."""
        state = self.engine_state.sessions.get(session)
        if state is not None and state.parent is not None:
            state.parent.cel_session["children"] -= 1
        self.rebuild(Closed(session=session))

    def _learn(self, observation: Observation, attempt: Attempt, at: int | None) -> str:
        """The id of the constraint that a lesson has taught or confirmed; empty for none."""
        entry = self._learn_entries.get(observation.learn)
        if entry is None:
            return ""
        if self._is_rebuilding:
            known = (
                self.constraint_set.get(constraint_id(observation)) if not observation.ok else None
            )
            return known.id if known is not None else ""
        return self.constraint_set.learn(
            observation, entry.settings, attempt.session.id, attempt.id, at
        )

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call did not get through."""
        given_up = transitions.refuse(self.evaluator, self.engine_state, session, event)
        if given_up is not None and self.shared_budgets is not None and not self._is_rebuilding:
            self.shared_budgets.abandon(given_up, event.at)
        self._progress_tracker.refuse(session, event)

    def complete(
        self,
        attempt: Attempt,
        event: Completed,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        observations: tuple[Observation, ...],
        at: int | None,
    ) -> list[str]:
        """A call has its result. Returns the ids of the constraints that it taught or confirmed."""
        if attempt.probes:
            for id_ in attempt.probes:
                self.constraint_set.end_probe(id_)
        transitions.complete(
            self.evaluator, self.engine_state, attempt, outcome, charges, at, event.still_running
        )
        if self.shared_budgets is not None and not self._is_rebuilding:
            self.shared_budgets.complete(attempt, charges, at)
        taught: list[str] = []
        if observations:
            confirmed = attempt.session.confirmed_constraints
            for lesson in observations:
                id_ = self._learn(lesson, attempt, at)
                if id_:
                    taught.append(id_)
                    confirmed[id_] = lesson.seq
            while len(confirmed) > self.evaluator.bounds.window_entries:
                del confirmed[next(iter(confirmed))]
        if attempt.radius and event.provenance == "explicit":  # what was read out of a text is none
            self.radius_limiter.complete(attempt, outcome)
        if taught or outcome.score is not None or attempt.state_changing:
            self._progress_tracker.complete(attempt, outcome, taught=bool(taught))
        return taught
