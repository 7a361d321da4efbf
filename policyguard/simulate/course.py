"""One recorded session under one policy: what it says to each call, and what that amounts to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from policyguard.guard import Guard
from policyguard.model.decision import Decision, Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Completed, Event, Refused, Released, Spent, Started
from policyguard.model.outcome import Outcome, Recorded
from policyguard.model.quantity import units
from policyguard.simulate.answer import ALLOWED, UNKNOWN, Answer
from policyguard.simulate.hidden import Blind, Sight, stand_in

Hit = tuple[str, str, bool]
"""An entry that fired: its id, its effect, and whether it is in observe mode."""


class Course:
    """A session on its way through a guard, with counts of what the policy says.

    `hits` counts by entry, `faults` expressions that failed (the first error, and how often),
    `effects` calls by verdict. Indices are those of calls in the session, from 0.

    Where something is not known that the policy asks for (arguments, results, tags), a call is
    refused only if it would be whatever that is; else the answer is *unknown*, and the call is
    taken as it was recorded. `missing` says which tags the recording lacks.
    """

    def __init__(
        self, guard: Guard, started: Started, blind: Callable[[], Blind], missing: str
    ) -> None:
        self.guard = guard
        self._started = started
        self._session = guard.start(started, apart=True)
        self._blind = blind
        self._careful = self._untagged = bool(missing)
        self._doubtful = self._doubtful_learning = False
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
        if event.args is None or self._careful:
            answer = self._judge_carefully(event, place)
        else:
            decision = self._replay(event)
            if decision.violations or decision.would or decision.errors:
                answer = self._answer(decision, None)
            else:
                answer = UNKNOWN if self._doubtful else ALLOWED
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
        if hidden and self._blind().results_open:
            self._doubtful = self._doubtful_learning = self._careful = True
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
        self._session.close()

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
        sight = None
        if event.args is None:
            sight = self._blind().sight(event, self._started.agent)
            event = stand_in(event, place)
        guard, stance = self.guard, self.guard.stance
        guard.stance = msgspec.structs.replace(stance, observe=True)
        try:
            decision = self._replay(event)
        finally:
            guard.stance = stance
        answer = self._answer(decision, sight, careful=True)
        if answer.refused and not stance.observe:
            # It is certain: the call did not run, and that counts too.
            self._session.replay(Released(session=event.session, at=event.at, call=event.call))
            self._replay(event)
        if sight is not None and not sight.changing:
            self._doubtful = True
        return answer

    def _answer(self, decision: Decision, sight: Sight | None, *, careful: bool = False) -> Answer:
        """What a decision says that has something to say."""
        found, noticed = decision.violations, decision.would
        if (
            self.guard.stance.observe or careful
        ):  # as if all were in observe mode: whom would it hit?
            observed = self._blind().observed
            found = tuple(one for one in decision.would if one.id not in observed)
            noticed = tuple(one for one in decision.would if one.id in observed)
        # An expression that misses what is hidden has not failed.
        self._failed([one for one in decision.errors if sight is None or sight.certain(one.id)])
        for violation in noticed:
            self._hit(violation, observed=True)
        strongest: Violation | None = None
        open_ = self._doubtful or (sight is not None and not sight.clear)
        for violation in found:
            if self._uncertain(violation, decision.errors, sight):
                open_ = True
                continue
            self._hit(violation, observed=False)
            if strongest is None or violation.effect.strength > strongest.effect.strength:
                strongest = violation
        refused = strongest is not None and strongest.effect.strength >= Effect.ASK.strength
        if open_ and not refused:
            return UNKNOWN
        if strongest is None:
            return ALLOWED
        return Answer(strongest.effect.value, self._entry(strongest.id), strongest.text, refused)

    def _uncertain(
        self, violation: Violation, faults: tuple[Fault, ...], sight: Sight | None
    ) -> bool:
        """Whether it is not known that this would stand, knew one all that the policy asks for."""
        if sight is not None and not sight.certain(violation.id):
            return True
        if self._doubtful_learning and violation.id.startswith("constraints/"):
            return True
        return self._untagged and any(fault.id == violation.id for fault in faults)

    def _failed(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            first, count = self.faults.get(fault.id, (fault.error, 0))
            self.faults[fault.id] = first, count + 1

    def _hit(self, violation: Violation, *, observed: bool) -> None:
        hit = self._entry(violation.id), violation.effect.value, observed
        self.hits[hit] = self.hits.get(hit, 0) + 1

    def _entry(self, violation: str) -> str:
        """The entry of the policy behind a violation: of a constraint, the one that taught it."""
        kind, _, name = violation.partition("/")
        if kind != "constraints":
            return violation
        constraint = self.guard.world.memory.get(name)
        learn = constraint.learn if constraint is not None else ""
        return f"signatures/{learn}/learn" if learn else "learn"
