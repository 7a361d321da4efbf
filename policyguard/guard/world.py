"""All that a guard knows: the evaluator's state and what has been learned, both folds of events."""

from __future__ import annotations

from policyguard.compiler import Compiled
from policyguard.evaluator import fold as folding
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import Flight, SessionState
from policyguard.evaluator.state import State
from policyguard.guard.convergence import Convergence
from policyguard.guard.radius import Radius
from policyguard.learned.memory import Memory
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

    def admit(self, session: SessionState, event: Admitted, attempt: Attempt, plan: Plan) -> None:
        """A call takes its place; a ban that let it through is on trial with it."""
        folding.admit(self.evaluator, self.state, session, event, attempt, plan)
        for id_ in event.trials:
            self.memory.begin_trial(id_, event.at)
        self._convergence.admit(session, event)

    def refuse(self, session: SessionState, event: Refused) -> None:
        """A call did not get through."""
        folding.refuse(session, event)
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
            entry = self._learning.get(lesson.learn)
            if entry is None:
                continue
            id_ = self.memory.learn(lesson, entry.teaching, session.id, event.call, event.at)
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
