"""All that a guard knows: the evaluator's state and what has been learned, both folds of events."""

from __future__ import annotations

from policyguard.compiler import Compiled
from policyguard.compiler.redaction import redactor
from policyguard.evaluator import fold as folding
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import Flight, SessionState
from policyguard.evaluator.state import State
from policyguard.evaluator.view import View
from policyguard.guard.convergence import Convergence
from policyguard.guard.learner import Learner
from policyguard.guard.radius import Radius
from policyguard.learned.memory import Memory, constraint_id
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Fault, Violation
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Admitted, Completed, Event, Refused, Released
from policyguard.model.outcome import Outcome


class World:
    """State and memory under one policy. Live calls and replayed events change them alike."""

    def __init__(self, compiled: Compiled) -> None:
        self.evaluator = evaluator = compiled.evaluator
        self.state = State()
        self.memory = Memory(
            most=evaluator.bounds.constraints, most_evidence=evaluator.bounds.evidence
        )
        self.radius = Radius(compiled.radius)
        self._convergence = Convergence(compiled.policy)
        self._learning = compiled.learning
        self._learner = Learner(
            compiled.learning,
            evaluator.bounds.unreported,
            compiled.fingerprinter.text,
            redactor(compiled.policy),
        )
        self._learned_before = False

    def fold(self, event: Event) -> None:
        """Bring everything up to date with one event that carries its derived fields."""
        session = self.state.sessions.get(event.session)
        if session is not None:
            match event:
                case Admitted():
                    plan = self.evaluator.plan(
                        event.tool, event.server, session.agent, event.class_
                    )
                    self.admit(session, event, folding.rebuild(event), plan)
                    return
                case Completed():
                    flight = session.flights.get(event.call)
                    if flight is not None:
                        self.complete(session, event, flight, folding.recall(event))
                    return
                case Refused():
                    self.refuse(session, event)
                    return
                case Released():
                    flight = session.flights.get(event.call)
                    for id_ in flight.attempt.trials if flight is not None else ():
                        self.memory.end_trial(id_)
        folding.fold(self.evaluator, self.state, event)

    def judge(self, session: SessionState, attempt: Attempt, view: View) -> list[Violation]:
        """What has been learned speaks against a call; bans that let it through go on trial."""
        radius = self.radius.judge(session, attempt, view)
        if not self._learning:
            return radius
        try:
            violations, trials = self._learner.judge(self.memory, session, attempt, view)
        except ExpressionError as error:
            # Whether a constraint binds cannot be told: that is no constraint's evidence.
            attempt.faults.append(Fault("learn", str(error)))
            return radius
        attempt.trials = tuple(trials)
        return [*radius, *violations]

    def lessons(
        self,
        session: SessionState,
        attempt: Attempt,
        view: View,
        event: Completed,
        outcome: Outcome,
        faults: list[Fault],
    ) -> tuple[Lesson, ...]:
        """What a result teaches; nothing where its failure was only read out of a text."""
        if not self._learning or event.known != "explicit":
            return ()
        return tuple(self._learner.lessons(session, attempt, view, outcome, faults))

    def admit(self, session: SessionState, event: Admitted, attempt: Attempt, plan: Plan) -> None:
        """A call takes its place; a ban that let it through is on trial with it."""
        folding.admit(self.evaluator, self.state, session, event, attempt, plan)
        for id_ in event.trials:
            self.memory.begin_trial(id_, event.at)
        self._convergence.admit(session, event)

    def rebuild(self, event: Event) -> None:
        """Fold an event of a journal whose lessons have been learned long ago, and kept."""
        self._learned_before = True
        try:
            self.fold(event)
        finally:
            self._learned_before = False

    def _learn(self, lesson: Lesson, session: SessionState, event: Completed) -> str:
        """The id of the constraint that a lesson has taught or confirmed; empty for none."""
        entry = self._learning.get(lesson.learn)
        if entry is None:
            return ""
        if self._learned_before:
            known = self.memory.get(constraint_id(lesson)) if not lesson.ok else None
            return known.id if known is not None else ""
        return self.memory.learn(lesson, entry.teaching, session.id, event.call, event.at)

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call did not get through."""
        folding.refuse(self.evaluator, session, event)
        self._convergence.refuse(session, event)

    def complete(
        self, session: SessionState, event: Completed, flight: Flight, outcome: Outcome
    ) -> list[str]:
        """A call has its result. Returns the ids of the constraints that it taught or confirmed."""
        for id_ in flight.attempt.trials:
            self.memory.end_trial(id_)
        folding.complete(self.evaluator, self.state, session, event, flight, outcome)
        taught = []
        for lesson in event.lessons:
            id_ = self._learn(lesson, session, event)
            if id_:
                taught.append(id_)
                session.confirmed[id_] = lesson.seq
        while len(session.confirmed) > self.evaluator.bounds.window_entries:
            del session.confirmed[next(iter(session.confirmed))]
        attempt = flight.attempt
        if event.known == "explicit":  # what was read out of a text is no evidence
            self.radius.complete(session, attempt, outcome)
        self._convergence.complete(session, event, attempt, outcome, taught=bool(taught))
        return taught
