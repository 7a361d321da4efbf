"""One recorded session under one policy: a decision for each call, and counts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from operator import not_
from typing import NamedTuple

from policyguard.compiler.build.entry_paths import learn_id
from policyguard.guard.replay import ReplayGuard
from policyguard.model.amounts import to_units
from policyguard.model.decision import Decision, EvalError, Violation
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    Marked,
    Refused,
    SessionEnded,
    SessionStarted,
    Spent,
)
from policyguard.model.outcome import Outcome, Recorded
from policyguard.report.replay.figures import ReplayEffect
from policyguard.simulate.sessions.redacted import (
    Applicability,
    PartialEvaluator,
    violation_entry,
    with_placeholder_args,
)
from policyguard.simulate.sessions.uncertainty import Uncertainty


class ReplayDecision(NamedTuple):
    """A policy's decision on a recorded call, with its strongest violation.

    `refused`: the call would not have run.
    """

    effect: ReplayEffect
    rule: str | None = None
    message: str | None = None
    refused: bool = False


ALLOWED = ReplayDecision("allow")
UNKNOWN = ReplayDecision("unknown")

FiredEntry = tuple[str, str, bool]
"""An entry that fired: its id, its effect, and whether it is in observe mode."""


class SessionReplay:
    """A recorded session that is replayed through a guard, with counts of the decisions.

    `hits` counts calls by entry, `eval_errors` failed expressions (the first error, and how
    often), `effects` calls by effect. Indices are those of calls in the session, from 0.

    If the policy reads data that is missing (arguments, results, tags), a call is refused or
    allowed only if it would be whatever the data is. Otherwise it is *unknown*, and counts as it
    was recorded. `missing_tags` says which tags the recording lacks, `uncertainty` what others make
    unknown here.
    """

    def __init__(
        self,
        guard: ReplayGuard,
        started: SessionStarted,
        get_partial_evaluator: Callable[[], PartialEvaluator],
        missing_tags: str,
        uncertainty: Uncertainty,
    ) -> None:
        self.guard = guard
        self._started = started
        self._session = guard.start_session(started)
        self._get_partial_evaluator = get_partial_evaluator
        self.lacks_tags = bool(missing_tags)
        self.uncertainty = self._uncertainty = uncertainty
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
        """Evaluate a recorded call; `index` is its position in the session."""
        if self.first_refusal is not None:
            self.calls_after_refusal += 1
        if event.args is None or self.lacks_tags or self._uncertainty:
            replayed = self._evaluate_partially(event, index)
        else:
            decision = self._check(event)
            if decision.violations or decision.would or decision.errors or decision.waived:
                replayed = self._interpret(decision, None, has_time=event.at is not None)
            else:
                replayed = ALLOWED
        if replayed is UNKNOWN:
            self.unknown += 1
            return replayed
        self.effects[replayed.effect] += 1
        if replayed.refused:
            self.refused += 1
            if self.first_refusal is None:
                self.first_refusal, self.first_tool = index, event.shown_tool
                self.first_rule, self.first_effect = replayed.rule, replayed.effect
                self.first_message = replayed.message
        if self.first_divergence is None and replayed.refused is (event.__class__ is Admitted):
            self.first_divergence = index
        return replayed

    def replay_result(self, event: Completed, *, redacted: bool) -> Outcome:
        """Record a result; that of a refused call changes nothing.

        `redacted`: fingerprints replace texts that the recording lacks.
        """
        if self.first_refusal is not None and event.cost:
            self.cost_after_refusal += to_units(event.cost) or 0
        if redacted and (partial := self._get_partial_evaluator()).results.is_undecidable(event):
            self._uncertainty.add_result(partial.uncertain_after(event), partial.marks_by_result)
        recorded = self._session.record(event)
        if recorded.errors:
            errors = recorded.errors
            if self._uncertainty:  # reading redacted data is not an error of the expression
                errors = tuple(one for one in errors if not one.id.startswith("marks/"))
            self._count_errors(errors)
        if recorded.violations or recorded.would:
            self._count_result_rules(recorded)
        return recorded.outcome

    def replay_event(self, event: Event) -> None:
        """Apply an event that is neither a call nor a result."""
        if isinstance(event, Spent) and self.first_refusal is not None:
            self.cost_after_refusal += to_units(event.cost) or 0
        if isinstance(event, Marked) and not event.child:
            self._uncertainty.add_marks(self._get_partial_evaluator().uncertain_marks(event))
        if self._session.closed:
            self._reopen()
        self._session.apply(event)

    def close(self) -> None:
        """Close the session at the end of its recording."""
        self._session.apply(SessionEnded(session=self._session.id, at=0))

    def _reopen(self) -> None:
        """Start anew: with too many open sessions, a guard closes the least recently used one."""
        self._session = self.guard.start_session(self._started)

    def _check(self, event: Admitted | Refused) -> Decision:
        decision = self._session.check(event)
        if decision.violations and self._session.closed:
            self._reopen()
            return self._session.check(event)
        return decision

    def _evaluate_partially(self, event: Admitted | Refused, index: int) -> ReplayDecision:
        """Evaluate a call with incomplete data."""
        uncertainty = self._uncertainty
        applicability = self._get_partial_evaluator().assess(event, self._started.agent)
        if event.args is None:
            event = with_placeholder_args(event, index)
        if self._session.closed:
            self._reopen()
        may_fire = uncertainty.state_changes and self._session.can_fire(event, applicability.plans)
        decision = self._session.preview(event)
        replayed = self._interpret(
            decision, applicability, may_fire=may_fire, has_time=event.at is not None
        )
        if replayed.refused:
            self._check(event)
        elif replayed is UNKNOWN and isinstance(event, Refused) and not self.guard.observe:
            uncertainty.add_refusal()
        else:
            # A change of state ends a repetition, so one that is refused all the same is certain.
            self._session.admit(event, state_changing=not applicability.knows_state_change)
        if replayed.refused and may_fire:
            uncertainty.add_refusal()
        uncertainty.add_call(applicability)
        return replayed

    def _interpret(
        self,
        decision: Decision,
        applicability: Applicability | None,
        *,
        may_fire: bool = False,
        has_time: bool = True,
    ) -> ReplayDecision:
        """Count and summarize a decision that has violations or errors.

        `applicability` is None if all data is known. `may_fire`: a limit that did not fire would
        have, if no state had changed. Whether an exception holds is unknown of a call that has no
        time.
        """
        exceptions = self.guard.exceptions
        violations, observed = decision.violations, decision.would
        if self.guard.observe:  # everything is in `would`: tell apart what the policy observes
            observe_only = self._get_partial_evaluator().observe_only
            is_observed = [violation_entry(found.id) in observe_only for found in decision.would]
            violations = tuple(compress(decision.would, map(not_, is_observed)))
            observed = tuple(compress(decision.would, is_observed))
        uncertain: frozenset[str] = frozenset()
        errors: Iterable[EvalError] = decision.errors
        is_open = False
        if applicability is not None:
            uncertain = applicability.undecidable | self._uncertainty.entries
            is_open = (
                may_fire
                or self._uncertainty.may_be_refused
                or not uncertain.isdisjoint(applicability.applicable)
            )
            if applicability.undecidable:  # reading redacted data is not an error of the expression
                decidable = applicability.applicable - applicability.undecidable
                errors = (error for error in errors if error.id in decidable)
        self._count_errors(errors)
        certain: list[Violation] = []
        for violation in violations:
            lacks_tag = self.lacks_tags and any(
                error.id == violation.id for error in decision.errors
            )
            may_be_waived = (
                not has_time and exceptions is not None and exceptions.covers(violation.id)
            )
            if lacks_tag or may_be_waived or violation_entry(violation.id) in uncertain:
                is_open = True
            else:
                certain.append(violation)
        refused = any(_is_refusing(found) for found in certain if found.reason != "refusals")
        # A set, since several constraints of one entry may refuse the same call.
        fired = {
            self._fired_entry(violation, observed=True)
            for violation in observed
            if violation_entry(violation.id) not in uncertain
        }
        strongest: Violation | None = None
        for violation in certain:
            if violation.reason == "refusals" and not refused:
                continue  # it only follows refusals by other entries
            fired.add(self._fired_entry(violation, observed=False))
            if strongest is None or violation.effect.strength > strongest.effect.strength:
                strongest = violation
        fired |= {(waiver.exception, Effect.ALLOW.value, False) for waiver in decision.waived}
        for entry in fired:
            self.hits[entry] = self.hits.get(entry, 0) + 1
        if is_open and not refused:
            return UNKNOWN
        if strongest is None:
            return ALLOWED
        return ReplayDecision(
            strongest.effect.value, self._entry_id(strongest.id), strongest.text, refused
        )

    def _count_result_rules(self, recorded: Recorded) -> None:
        """Count the result rules that fired; tell apart what the policy observes."""
        fired = [(one, False) for one in recorded.violations]
        if recorded.would:
            observe_only = self._get_partial_evaluator().observe_only
            fired += [(one, one.id in observe_only) for one in recorded.would]
        for violation, observed in fired:
            entry = violation.id, violation.effect, observed
            self.hits[entry] = self.hits.get(entry, 0) + 1

    def _count_errors(self, errors: Iterable[EvalError]) -> None:
        for error in errors:
            first, count = self.eval_errors.get(error.id, (error.error, 0))
            self.eval_errors[error.id] = first, count + 1

    def _fired_entry(self, violation: Violation, *, observed: bool) -> FiredEntry:
        return self._entry_id(violation.id), violation.effect.value, observed

    def _entry_id(self, violation: str) -> str:
        """Return the policy entry behind a violation; for a constraint, the one that taught it."""
        kind, _, name = violation.partition("/")
        if kind != "constraints":
            return violation
        constraint = self.guard.find_constraint(name)
        return learn_id(constraint.learn if constraint is not None else "")


def _is_refusing(violation: Violation) -> bool:
    return violation.effect.strength >= Effect.ASK.strength
