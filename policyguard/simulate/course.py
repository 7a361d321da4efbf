"""One recorded session under one policy: what it says to each call, and what that amounts to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from policyguard.guard import Guard
from policyguard.model.decision import Decision, Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Closed, Completed, Event, Refused, Spent, Started
from policyguard.model.outcome import Outcome, Recorded
from policyguard.model.quantity import units
from policyguard.simulate.answer import ALLOWED, UNKNOWN, Answer
from policyguard.simulate.doubt import Doubt
from policyguard.simulate.hidden import stand_in
from policyguard.simulate.sight import Blind, Sight, entry_of

Hit = tuple[str, str, bool]
"""An entry that fired: its id, its effect, and whether it is in observe mode."""


class Course:
    """A session on its way through a guard, with counts of what the policy says.

    `hits` counts calls by entry, `faults` expressions that failed (the first error, and how often),
    `effects` calls by verdict. Indices are those of calls in the session, from 0.

    Where something is not known that the policy asks for (arguments, results, tags), a call is
    refused, or allowed, only if it would be whatever that is; else the answer is *unknown*, and the
    call is taken as it was recorded. `missing` says which tags the recording lacks.
    """

    def __init__(
        self, guard: Guard, started: Started, blind: Callable[[], Blind], missing: str
    ) -> None:
        self.guard = guard
        self._started = started
        self._session = guard.start(started, apart=True)
        self._blind = blind
        self._untagged = bool(missing)
        self._doubt = Doubt()
        self.effects: dict[str, int] = dict.fromkeys(Effect, 0)
        self.hits: dict[Hit, int] = {}
        self.faults: dict[str, tuple[str, int]] = {"tags": (missing, 1)} if missing else {}
        self.refused = self.unknown = 0
        self.first_refusal: int | None = None
        self.first_rule: str | None = None
        self.first_effect: str | None = None
        self.first_tool: str | None = None
        self.first_message: str | None = None
        self.first_divergence: int | None = None
        self.calls_after = self.cost_after = 0

    def call(self, event: Admitted | Refused, place: int) -> Answer:
        """Judge a recorded call. `place` is its index in the session."""
        if self.first_refusal is not None:
            self.calls_after += 1
        if event.args is None or self._untagged or self._doubt:
            answer = self._judge_carefully(event, place)
        else:
            decision = self._replay(event)
            if decision.violations or decision.would or decision.errors:
                answer = self._answer(decision, None)
            else:
                answer = ALLOWED
        if answer is UNKNOWN:
            self.unknown += 1
            return answer
        self.effects[answer.effect] += 1
        if answer.refused:
            self.refused += 1
            if self.first_refusal is None:
                self.first_refusal, self.first_tool = place, event.tool
                self.first_rule, self.first_effect = answer.rule, answer.effect
                self.first_message = answer.message
        if self.first_divergence is None and answer.refused is (event.__class__ is Admitted):
            self.first_divergence = place
        return answer

    def result(self, event: Completed, *, hidden: bool) -> Outcome:
        """Take in a recorded result. That of a call that was refused changes nothing.

        `hidden`: fingerprints stand in it where texts were not kept.
        """
        if self.first_refusal is not None and event.cost:
            self.cost_after += units(event.cost) or 0
        if hidden and (blind := self._blind()).results.leave_open(event):
            self._doubt.of_result(blind.by_results)
        recorded = self._session.replay(event)
        assert isinstance(recorded, Recorded)  # noqa: S101 - a result is answered by one
        if recorded.errors:
            self._failed(recorded.errors)
        return recorded.outcome

    def other(self, event: Event) -> None:
        """Take in anything else that has happened."""
        if isinstance(event, Spent) and self.first_refusal is not None:
            self.cost_after += units(event.cost) or 0
        if self._session.closed:
            self._reopen()
        self._session.replay(event)

    def close(self) -> None:
        """The recording of this session is over."""
        self._session.replay(Closed(session=self._session.id, at=self.guard.clock()))

    def _reopen(self) -> None:
        """Begin anew: a guard closes the session used longest ago where too many are open."""
        self._session = self.guard.start(self._started, apart=True)

    def _replay(self, event: Admitted | Refused) -> Decision:
        decision = self._session.replay(event)
        assert isinstance(decision, Decision)  # noqa: S101 - an attempt is answered by one
        if decision.violations and self._session.closed:
            self._reopen()
            return self._replay(event)
        return decision

    def _judge_carefully(self, event: Admitted | Refused, place: int) -> Answer:
        """Judge a call about which something is not known."""
        blind, doubt = self._blind(), self._doubt
        sight = blind.sight(event, self._started.agent)
        if event.args is None:
            event = stand_in(event, place)
        if self._session.closed:
            self._reopen()
        heard = doubt.changes and not blind.unheard(event, sight, self.guard.world)
        answer = self._answer(self._session.foresee(event), sight, heard=heard)
        if answer.refused:
            self._replay(event)
        elif answer is UNKNOWN and isinstance(event, Refused) and not self.guard.stance.observe:
            doubt.of_refusal()
        else:
            self._let_through(event, changing=not sight.changing)
        if answer.refused and heard:
            doubt.of_refusal()
        doubt.of_call(sight)
        return answer

    def _let_through(self, event: Admitted | Refused, *, changing: bool) -> None:
        """The call runs, whatever the policy says; with `changing` it is taken for a change.

        A change ends a repetition: so one that is refused is certain, where none is known.
        """
        guard, stance = self.guard, self.guard.stance
        guard.stance = msgspec.structs.replace(stance, observe=True)
        try:
            self._replay(event)
        finally:
            guard.stance = stance
        attempt = guard.world.state.sessions[self._started.session].flights.get(event.call)
        if changing and attempt is not None:
            attempt.changing = True

    def _answer(self, decision: Decision, sight: Sight | None, *, heard: bool = False) -> Answer:
        """What a decision says that has something to say.

        With `sight` not all is known; `heard`: a limit may say more, if nothing has changed since.
        """
        found, noticed = decision.violations, decision.would
        if self.guard.stance.observe:  # as if all were in observe mode: whom would it hit?
            observed = self._blind().observed
            found = tuple(one for one in decision.would if one.id not in observed)
            noticed = tuple(one for one in decision.would if one.id in observed)
        uncertain: frozenset[str] = frozenset()
        if sight is not None:
            uncertain = sight.hidden | self._doubt.entries
        # An expression that misses what is hidden has not failed.
        self._failed(
            one
            for one in decision.errors
            if sight is None or not sight.hidden or one.id in sight.applying - sight.hidden
        )
        # What was learned may speak many times of one call: one entry has taught it all.
        said = {self._hit(violation, observed=True) for violation in noticed}
        open_ = sight is not None and (
            heard or self._doubt.all or not uncertain.isdisjoint(sight.applying)
        )
        standing: list[Violation] = []
        for violation in found:
            untold = self._untagged and any(one.id == violation.id for one in decision.errors)
            if untold or entry_of(violation.id) in uncertain:
                open_ = True
            else:
                standing.append(violation)
        refusing = any(_refuses(one) for one in standing if one.reason != "refusals")
        strongest: Violation | None = None
        for violation in standing:
            if violation.reason == "refusals" and not refusing:
                continue  # it speaks of calls that something else refuses
            said.add(self._hit(violation, observed=False))
            if strongest is None or violation.effect.strength > strongest.effect.strength:
                strongest = violation
        for hit in said:
            self.hits[hit] = self.hits.get(hit, 0) + 1
        if open_ and not refusing:
            return UNKNOWN
        if strongest is None:
            return ALLOWED
        return Answer(strongest.effect.value, self._entry(strongest.id), strongest.text, refusing)

    def _failed(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            first, count = self.faults.get(fault.id, (fault.error, 0))
            self.faults[fault.id] = first, count + 1

    def _hit(self, violation: Violation, *, observed: bool) -> Hit:
        return self._entry(violation.id), violation.effect.value, observed

    def _entry(self, violation: str) -> str:
        """The entry of the policy behind a violation: of a constraint, the one that taught it."""
        kind, _, name = violation.partition("/")
        if kind != "constraints":
            return violation
        constraint = self.guard.world.memory.get(name)
        learn = constraint.learn if constraint is not None else ""
        return f"signatures/{learn}/learn" if learn else "learn"


def _refuses(violation: Violation) -> bool:
    return violation.effect.strength >= Effect.ASK.strength
