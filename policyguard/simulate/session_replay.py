"""What a policy says to a recorded call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from policyguard.guard.replay import ReplayGuard
from policyguard.model.amounts import to_units
from policyguard.model.decision import Decision, EvalError, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Closed, Completed, Event, Refused, Spent, Started
from policyguard.model.outcome import Outcome
from policyguard.report.replay.figures import ReplayEffect
from policyguard.simulate.partial_evaluation import Applicability, PartialEvaluator, violation_entry
from policyguard.simulate.redacted import with_placeholder_args


class ReplayDecision(NamedTuple):
    """The verdict, and what has most against the call. `refused`: the call would not have run."""

    effect: ReplayEffect
    rule: str | None = None
    message: str | None = None
    refused: bool = False


ALLOWED = ReplayDecision("allow")
UNKNOWN = ReplayDecision("unknown")


class Uncertainty:
    """What a policy cannot be asked any more in one session. It only grows.

    `entries`: what these have counted is not known. `changes`: calls that may have changed
    something were taken to have; so a repetition that is refused is certain, and one that is let
    through is not. `all`: whatever is let through, it might have been refused.
    """

    __slots__ = ("entries", "may_be_refused", "state_changes")

    def __init__(self) -> None:
        self.may_be_refused = self.state_changes = False
        self.entries: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.may_be_refused or self.state_changes or bool(self.entries)

    def add_call(self, applicability: Applicability) -> None:
        """A call was judged of which not all is known."""
        if not applicability.uncertain_counts <= self.entries:
            self.entries |= applicability.uncertain_counts
        if not applicability.knows_state_change:
            self.state_changes = True

    def add_refusal(self) -> None:
        """A call was refused, and by what, or how hard, is not known."""
        self.may_be_refused = True

    def add_result(self, entries: frozenset[str]) -> None:
        """A result would have told something; `entries` count what results say."""
        self.may_be_refused = True
        self.entries |= entries | {"learn"}


FiredEntry = tuple[str, str, bool]
"""An entry that fired: its id, its effect, and whether it is in observe mode."""


class SessionReplay:
    """A session on its way through a guard, with counts of what the policy says.

    `hits` counts calls by entry, `faults` expressions that failed (the first error, and how often),
    `effects` calls by verdict. Indices are those of calls in the session, from 0.

    Where something is not known that the policy asks for (arguments, results, tags), a call is
    refused, or allowed, only if it would be whatever that is; else the answer is *unknown*, and the
    call is taken as it was recorded. `missing` says which tags the recording lacks.
    """

    def __init__(
        self,
        guard: ReplayGuard,
        started: Started,
        get_partial_evaluator: Callable[[], PartialEvaluator],
        missing_tags: str,
    ) -> None:
        self.guard = guard
        self._started = started
        self._session = guard.start_session(started)
        self._get_partial_evaluator = get_partial_evaluator
        self._lacks_tags = bool(missing_tags)
        self._uncertainty = Uncertainty()
        self.effects: dict[str, int] = dict.fromkeys(Effect, 0)
        self.hits: dict[FiredEntry, int] = {}
        self.eval_errors: dict[str, tuple[str, int]] = (
            {"tags": (missing_tags, 1)} if missing_tags else {}
        )
        self.refused = self.unknown = 0
        self.first_refusal: int | None = None
        self.first_rule: str | None = None
        self.first_effect: str | None = None
        self.first_tool: str | None = None
        self.first_message: str | None = None
        self.first_divergence: int | None = None
        self.calls_after_refusal = self.cost_after_refusal = 0

    def replay_call(self, event: Admitted | Refused, index: int) -> ReplayDecision:
        """Judge a recorded call. `place` is its index in the session."""
        if self.first_refusal is not None:
            self.calls_after_refusal += 1
        if event.args is None or self._lacks_tags or self._uncertainty:
            answer = self._evaluate_partially(event, index)
        else:
            decision = self._replay(event)
            if decision.violations or decision.would or decision.errors:
                answer = self._interpret(decision, None)
            else:
                answer = ALLOWED
        if answer is UNKNOWN:
            self.unknown += 1
            return answer
        self.effects[answer.effect] += 1
        if answer.refused:
            self.refused += 1
            if self.first_refusal is None:
                self.first_refusal, self.first_tool = index, event.tool
                self.first_rule, self.first_effect = answer.rule, answer.effect
                self.first_message = answer.message
        if self.first_divergence is None and answer.refused is (event.__class__ is Admitted):
            self.first_divergence = index
        return answer

    def replay_result(self, event: Completed, *, redacted: bool) -> Outcome:
        """Take in a recorded result. That of a call that was refused changes nothing.

        `hidden`: fingerprints stand in it where texts were not kept.
        """
        if self.first_refusal is not None and event.cost:
            self.cost_after_refusal += to_units(event.cost) or 0
        if redacted and (blind := self._get_partial_evaluator()).results.is_undecidable(event):
            self._uncertainty.add_result(blind.result_readers)
        recorded = self._session.record(event)
        if recorded.errors:
            self._count_errors(recorded.errors)
        return recorded.outcome

    def replay_event(self, event: Event) -> None:
        """Take in anything else that has happened."""
        if isinstance(event, Spent) and self.first_refusal is not None:
            self.cost_after_refusal += to_units(event.cost) or 0
        if self._session.closed:
            self._reopen()
        self._session.apply(event)

    def close(self) -> None:
        """The recording of this session is over."""
        self._session.apply(Closed(session=self._session.id, at=0))

    def _reopen(self) -> None:
        """Begin anew: a guard closes the session used longest ago where too many are open."""
        self._session = self.guard.start_session(self._started)

    def _replay(self, event: Admitted | Refused) -> Decision:
        decision = self._session.check(event)
        if decision.violations and self._session.closed:
            self._reopen()
            return self._replay(event)
        return decision

    def _evaluate_partially(self, event: Admitted | Refused, index: int) -> ReplayDecision:
        """Judge a call about which something is not known."""
        blind, doubt = self._get_partial_evaluator(), self._uncertainty
        sight = blind.assess(event, self._started.agent)
        if event.args is None:
            event = with_placeholder_args(event, index)
        if self._session.closed:
            self._reopen()
        heard = doubt.state_changes and self._session.can_fire(event, sight.plans)
        answer = self._interpret(self._session.preview(event), sight, may_fire=heard)
        if answer.refused:
            self._replay(event)
        elif answer is UNKNOWN and isinstance(event, Refused) and not self.guard.observe:
            doubt.add_refusal()
        else:
            # A change of state ends a repetition, so one that is refused all the same is certain.
            self._session.admit(event, state_changing=not sight.knows_state_change)
        if answer.refused and heard:
            doubt.add_refusal()
        doubt.add_call(sight)
        return answer

    def _interpret(
        self, decision: Decision, applicability: Applicability | None, *, may_fire: bool = False
    ) -> ReplayDecision:
        """What a decision says that has something to say.

        With `sight` not all is known; `heard`: a limit may say more, if nothing has changed since.
        """
        found, noticed = decision.violations, decision.would
        if self.guard.observe:  # as if all were in observe mode: whom would it hit?
            observed = self._get_partial_evaluator().observe_only
            found = tuple(one for one in decision.would if one.id not in observed)
            noticed = tuple(one for one in decision.would if one.id in observed)
        uncertain: frozenset[str] = frozenset()
        if applicability is not None:
            uncertain = applicability.undecidable | self._uncertainty.entries
        # An expression that misses what is hidden has not failed.
        self._count_errors(
            one
            for one in decision.errors
            if applicability is None
            or not applicability.undecidable
            or one.id in applicability.applicable - applicability.undecidable
        )
        # What was learned may speak many times of one call: one entry has taught it all.
        said = {self._fired_entry(violation, observed=True) for violation in noticed}
        open_ = applicability is not None and (
            may_fire
            or self._uncertainty.may_be_refused
            or not uncertain.isdisjoint(applicability.applicable)
        )
        standing: list[Violation] = []
        for violation in found:
            untold = self._lacks_tags and any(one.id == violation.id for one in decision.errors)
            if untold or violation_entry(violation.id) in uncertain:
                open_ = True
            else:
                standing.append(violation)
        refusing = any(_is_refusing(one) for one in standing if one.reason != "refusals")
        strongest: Violation | None = None
        for violation in standing:
            if violation.reason == "refusals" and not refusing:
                continue  # it speaks of calls that something else refuses
            said.add(self._fired_entry(violation, observed=False))
            if strongest is None or violation.effect.strength > strongest.effect.strength:
                strongest = violation
        for hit in said:
            self.hits[hit] = self.hits.get(hit, 0) + 1
        if open_ and not refusing:
            return UNKNOWN
        if strongest is None:
            return ALLOWED
        return ReplayDecision(
            strongest.effect.value, self._entry_id(strongest.id), strongest.text, refusing
        )

    def _count_errors(self, errors: Iterable[EvalError]) -> None:
        for fault in errors:
            first, count = self.eval_errors.get(fault.id, (fault.error, 0))
            self.eval_errors[fault.id] = first, count + 1

    def _fired_entry(self, violation: Violation, *, observed: bool) -> FiredEntry:
        return self._entry_id(violation.id), violation.effect.value, observed

    def _entry_id(self, violation: str) -> str:
        """The entry of the policy behind a violation: of a constraint, the one that taught it."""
        kind, _, name = violation.partition("/")
        if kind != "constraints":
            return violation
        constraint = self.guard.find_constraint(name)
        learn = constraint.learn if constraint is not None else ""
        return f"signatures/{learn}/learn" if learn else "learn"


def _is_refusing(violation: Violation) -> bool:
    return violation.effect.strength >= Effect.ASK.strength
