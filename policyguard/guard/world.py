"""All that a guard knows: the evaluator's state and what has been learned, both folds of events."""

from __future__ import annotations

from policyguard.compiler import Compiled
from policyguard.compiler.redaction import redactor
from policyguard.evaluator import calls
from policyguard.evaluator import fold as folding
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.own_book import OwnBook
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.guard.convergence import Convergence
from policyguard.guard.learner import Learner
from policyguard.guard.purse import Purser
from policyguard.guard.radius import Radius
from policyguard.learned.memory import Memory, constraint_id
from policyguard.model.constraint import Lesson
from policyguard.model.decision import Violation
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Admitted, Charge, Completed, Drawn, Event, Refused, Released
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
        self.narrows = bool(compiled.radius)
        self._convergence = Convergence(compiled.policy)
        self._learning = compiled.learning
        self.learner = Learner(
            compiled.learning,
            evaluator.bounds.unreported,
            compiled.fingerprinter.text,
            redactor(compiled.policy),
        )
        self._rebuilding = False
        self.purser: Purser | None = None

    def fold(self, event: Event) -> None:
        """Bring everything up to date with one event that carries its derived fields."""
        session = self.state.sessions.get(event.session)
        if session is not None:
            match event:
                case Admitted():
                    plan = self.evaluator.plan(
                        event.tool, event.server, session.agent, event.class_
                    )
                    self.admit(calls.rebuild(session, event, plan))
                    return
                case Completed():
                    attempt = session.flights.get(event.call)
                    if attempt is not None:
                        at, lessons = session.clamp(event.at), event.lessons
                        attempt.look_again(at)
                        outcome = folding.recall(event)
                        self.complete(attempt, event, outcome, event.charges, lessons, at)
                    return
                case Refused():
                    self.refuse(session, event)
                    return
                case Released():
                    attempt = session.flights.get(event.call)
                    for id_ in attempt.trials if attempt is not None else ():
                        self.memory.end_trial(id_)
        try:
            if session is not None and self.purser is not None and not self._rebuilding:
                self.purser.follow(session, event)
        finally:  # an event that a purse could not follow has happened
            folding.fold(self.evaluator, self.state, event)

    def judge(self, attempt: Attempt) -> list[Violation]:
        """What has been learned speaks against a call; bans that let it through go on trial."""
        radius = self.radius.judge(attempt) if self.narrows else []
        if not self._learning or not self.memory.constraints:
            return radius
        try:
            violations, trials = self.learner.judge(self.memory, attempt)
        except ExpressionError as error:
            # Whether a constraint binds cannot be told: that is no constraint's evidence.
            attempt.fault("learn", error)
            return radius
        if trials:
            attempt.trials = tuple(trials)
        return [*radius, *violations] if radius else violations

    def lessons(self, attempt: Attempt, event: Completed, outcome: Outcome) -> tuple[Lesson, ...]:
        """What a result teaches; nothing where its failure was only read out of a text."""
        if not self._learning or event.known != "explicit":
            return ()
        if outcome.ok and self.learner.knows_nothing(self.memory, attempt, evidence=True):
            return ()
        return tuple(self.learner.lessons(self.memory, attempt, outcome))

    def admit(self, attempt: Attempt) -> None:
        """A call takes its place; a ban that let it through is on trial with it."""
        given_up = calls.admit(self.evaluator, self.state, attempt)
        if self.purser is not None and not self._rebuilding:
            self.purser.admit(attempt, given_up)
        if attempt.trials:
            for id_ in attempt.trials:
                self.memory.begin_trial(id_, attempt.at)
        self._convergence.admit(attempt)

    def rebuild(self, event: Event) -> None:
        """Fold an event of a journal: what it taught has been learned, what it drew is drawn."""
        book = self.state.book
        self._rebuilding = True
        self.state.book = OwnBook(book, self.evaluator.budgets, event.session)
        try:
            if isinstance(event, Drawn):
                folding.drawn(self.evaluator, self.state, event)
            else:
                self.fold(event)
        finally:
            self._rebuilding = False
            self.state.book = book

    def _learn(self, lesson: Lesson, attempt: Attempt, at: int | None) -> str:
        """The id of the constraint that a lesson has taught or confirmed; empty for none."""
        entry = self._learning.get(lesson.learn)
        if entry is None:
            return ""
        if self._rebuilding:
            known = self.memory.get(constraint_id(lesson)) if not lesson.ok else None
            return known.id if known is not None else ""
        return self.memory.learn(lesson, entry.teaching, attempt.session.id, attempt.id, at)

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call did not get through."""
        given_up = calls.refuse(self.evaluator, self.state, session, event)
        if given_up is not None and self.purser is not None and not self._rebuilding:
            self.purser.give_up(given_up, event.at)
        self._convergence.refuse(session, event)

    def complete(
        self,
        attempt: Attempt,
        event: Completed,
        outcome: Outcome,
        charges: tuple[Charge, ...],
        lessons: tuple[Lesson, ...],
        at: int | None,
    ) -> list[str]:
        """A call has its result. Returns the ids of the constraints that it taught or confirmed."""
        if attempt.trials:
            for id_ in attempt.trials:
                self.memory.end_trial(id_)
        calls.complete(self.evaluator, self.state, attempt, outcome, charges, at, event.running)
        if self.purser is not None and not self._rebuilding:
            self.purser.complete(attempt, charges, at)
        taught: list[str] = []
        if lessons:
            confirmed = attempt.session.confirmed
            for lesson in lessons:
                id_ = self._learn(lesson, attempt, at)
                if id_:
                    taught.append(id_)
                    confirmed[id_] = lesson.seq
            while len(confirmed) > self.evaluator.bounds.window_entries:
                del confirmed[next(iter(confirmed))]
        if attempt.radius and event.known == "explicit":  # what was read out of a text is none
            self.radius.complete(attempt, outcome)
        if taught or outcome.score is not None or attempt.changing:
            self._convergence.complete(attempt, outcome, taught=bool(taught))
        return taught
