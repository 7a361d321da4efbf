"""Evaluation of a call: classify it, then ask limits, budgets and rules; the strongest effect wins.

Everything here is a pure function of policy, state and call, without clock or I/O. State changes
only in `transitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from policyguard.evaluator.activation import ActivationContext, CheckTags
from policyguard.evaluator.approvals import ApprovalRequirement
from policyguard.evaluator.attempt import Attempt, CallResult
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.evaluation import (
    ALLOWED,
    ApproverPresence,
    Evaluation,
    GuardMode,
    sort_by_strength,
    strength_of,
)
from policyguard.evaluator.evaluator_state import EvaluatorState
from policyguard.evaluator.exceptions import ExceptionSet
from policyguard.evaluator.grants import PatternReader
from policyguard.evaluator.halts import halt_violations
from policyguard.evaluator.marks.compiled_mark import CompiledMark
from policyguard.evaluator.marks.mark_states import MarkStates
from policyguard.evaluator.outcome_classifier import OutcomeClassifier
from policyguard.evaluator.pins import PinJudge
from policyguard.evaluator.plan import BoundPlan, ClassCandidates, Plan
from policyguard.evaluator.result_rules import ResultRules
from policyguard.evaluator.session_state import SessionState
from policyguard.model.decision import Violation, Waiver
from policyguard.model.effect import Effect
from policyguard.model.errors import NonPlainArgumentsError
from policyguard.model.event import Charge, Completed
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Bounds, ResultMeta
from policyguard.model.tool_name import full_name_alias

OPAQUE = "arguments/opaque"
"""The id of the error that says that a call cannot be compared with others."""
_OPAQUE_REASON = (
    "argument {} is a Python object that cannot be read: this call is the same as no other, and "
    "cannot be approved; pass data, or list the argument in `classify.fingerprint.ignore`"
)


CallIdentity = tuple[str, str, tuple[float, ...]]
"""A call's fingerprint; with tolerant numbers also the fingerprint without them, and they."""


class Evaluator(msgspec.Struct, eq=False, kw_only=True):
    """A compiled policy.

    `plan` looks up the plan of a tool, server, agent, classes and alias (`full_name_alias`),
    `plan_for_tool` that of a tool whose calls all have the same classes, `candidates` the classes
    of other tools. `identify`
    returns a call's identity or raises `ArgumentsError`, `find_likeness` what limits tell it by, if
    that is not its fingerprint; `within_tolerance` compares tolerant numbers. `patterns` tells
    which calls grants cover. `refusal_limits` are the ids of the limits of that kind, `exceptions`
    is None where the policy has none. With `refuses_batches` a refused call refuses the rest of
    its batch. `result_rules` is what the rules on results share, if there are any, `result_meta`
    names keys of their metadata. `pins` judges the definitions of tools, if the policy pins any.
    With `disables_tools` some limit refuses a tool, not a call.
    `reads_data`: an expression reads `outcome.data`. With either of result rules and this, a result
    `needs_parts`: more than its text.
    """

    name: str
    digest: str
    observe_only: bool
    allow_on_internal_error: bool
    bounds: Bounds
    candidates: Callable[[str, str, str], ClassCandidates]
    plan: Callable[[str, str, str, tuple[str, ...], str], Plan]
    plan_for_tool: Callable[[str, str, str, str], Plan | None]
    identify: Callable[[str, str, dict[str, Any]], CallIdentity]
    find_likeness: Callable[[str, str, dict[str, Any], str], str] | None
    within_tolerance: Callable[[tuple[float, ...], tuple[float, ...]], bool]
    activation_context: ActivationContext
    outcome_classifier: OutcomeClassifier
    budgets: dict[str, CompiledBudget]
    marks: dict[str, CompiledMark]
    approval_requirements: dict[str, ApprovalRequirement]
    refusal_limits: tuple[str, ...]
    exceptions: ExceptionSet | None
    refuses_batches: bool
    check_tags: CheckTags
    patterns: PatternReader
    result_rules: ResultRules | None
    result_meta: ResultMeta
    pins: PinJudge | None
    disables_tools: bool
    reads_data: bool
    reads_counts: bool
    reads_changed: bool
    remembers_calls: bool = False
    needs_parts: bool = False
    reads_call_details: bool = False

    def __post_init__(self) -> None:
        context = self.activation_context
        self.needs_parts = self.reads_data or self.result_rules is not None
        self.remembers_calls = self.reads_counts or context.reads_previous or bool(self.marks)
        self.reads_call_details = context.reads_previous or context.extract_targets is not None

    def new_mark_states(self) -> MarkStates | None:
        """Return the state of the policy's marks, none set; None if it has none."""
        if not self.marks:
            return None
        to_keys = self.activation_context.to_keys
        return MarkStates(self.marks, to_keys, self.bounds.budget_keys)

    def identify_call(self, attempt: Attempt) -> CallIdentity:
        """Return a call's identity; its arguments become plain. Raise `ArgumentsError`."""
        try:
            return self.identify(attempt.tool, attempt.server, attempt.args)
        except NonPlainArgumentsError as error:
            attempt.args = error.plain
            for path in error.opaque:
                attempt.add_error(OPAQUE, _OPAQUE_REASON.format(path))
            return self.identify(attempt.tool, attempt.server, attempt.args)

    def prepare(self, attempt: Attempt, identity: CallIdentity | None = None) -> BoundPlan:
        """Classify a call. Without its `identity`, raise what `identify_call` does."""
        session = attempt.session
        tool, server = attempt.tool, attempt.server
        at, now = attempt.at, session.now
        if now is not None and at is not None and at < now:
            attempt.at = now
        if identity is None:
            identity = self.identify_call(attempt)
        fingerprint, loose, numbers = identity
        if loose:
            attempt.loose_fingerprint, attempt.numbers = loose, numbers
            attempt.exact_fingerprint = fingerprint
            fingerprint = session.tolerant_calls.match(
                fingerprint, loose, numbers, self.within_tolerance
            )
        attempt.fingerprint = fingerprint
        find_likeness = self.find_likeness
        attempt.likeness = (
            fingerprint
            if find_likeness is None
            else find_likeness(tool, server, attempt.args, fingerprint)
        )
        if self.reads_call_details:
            self._find_call_details(session, attempt)
        name = (server, tool, attempt.host_tool) if server else tool
        bound_plan = session.plans_by_tool.get(name)
        if bound_plan is None:
            bound_plan = self._bind_plan(session, attempt, name)
        attempt.bound_plan = bound_plan
        plan = bound_plan.plan
        if plan.needs_more:
            self._find_plan_details(attempt, plan)
        return bound_plan

    def _find_call_details(self, session: SessionState, attempt: Attempt) -> None:
        """Find what only some policies read."""
        if self.activation_context.reads_previous:
            attempt.previous = session.previous_args.get(attempt.full_name, attempt.previous)
        if self.activation_context.extract_targets is not None:
            attempt.targets = self.activation_context.extract_targets(attempt.args)

    def _bind_plan(
        self, session: SessionState, attempt: Attempt, name: str | tuple[str, str, str]
    ) -> BoundPlan:
        """Find a call's plan by its tool, or by the classes that its arguments make it."""
        tool, server = attempt.tool, attempt.server
        alias = full_name_alias(tool, server, attempt.host_tool)
        plan = self.plan_for_tool(tool, server, session.agent, alias)
        if session.offered is not None:
            attempt.is_unknown = not session.offered.covers(attempt)
        if plan is not None and not attempt.is_unknown:
            bound_plan = session.bind_plan(plan)
            session.plans_by_tool[name] = bound_plan
            return bound_plan
        if plan is None:
            classes = self.candidates(tool, server, alias).classify(attempt)
            plan = self.plan(tool, server, session.agent, classes, alias)
        return session.bind_plan(plan)

    def _find_plan_details(self, attempt: Attempt, plan: Plan) -> None:
        """Find what only some kinds of calls have."""
        if not plan.kind_only:  # what it reads may differ once the result is there
            attempt.state_changing = plan.is_state_changing(attempt)
        if plan.keyed_limits:
            plan.find_limit_keys(attempt)
        if plan.timeout is not None:
            attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by
        if plan.marks is not None:
            attempt.cleared = plan.marks.find_cleared(attempt)

    def evaluate(
        self,
        state: EvaluatorState,
        attempt: Attempt,
        bound_plan: BoundPlan,
        learned: Sequence[Violation],
        mode: GuardMode,
    ) -> Evaluation:
        """Collect all violations; the strongest effect wins, in any order.

        `learned` are the violations of learned constraints.
        """
        session, plan = attempt.session, bound_plan.plan
        evaluates_limits = bound_plan.must_evaluate or not session.on_fast_path
        likeness = attempt.likeness
        for calls in bound_plan.watched:
            if likeness in calls:
                evaluates_limits = attempt.recurs = True
                break
        rules = plan.rules.possible_matches(attempt) if plan.rules else ()
        if not (
            evaluates_limits
            or learned
            or plan.budgets
            or rules
            or attempt.errors
            or attempt.is_unknown
            or attempt.pins
        ):
            return ALLOWED
        found = list(learned)
        if attempt.is_unknown and session.offered is not None:
            found.append(session.offered.violation(attempt))
        would: list[Violation] = []
        if attempt.pins and self.pins is not None:
            (would if self.pins.observe else found).extend(self.pins.violations(attempt.pins))
        if evaluates_limits:
            self._evaluate_limits(session, attempt, bound_plan, found, would)
        for budget in plan.budgets:
            violation = budget.evaluate(state.ledger, attempt)
            if violation is not None:
                (would if budget.observe else found).append(violation)
        for rule in rules:
            if attempt.at is None and rule.reads_time:
                continue
            violations = rule.evaluate(attempt)
            if violations:
                (would if rule.observe else found).extend(violations)
        if not (found or would or attempt.errors):
            return ALLOWED
        if mode.observe:
            would, found = found + would, []
        return self._combine(state, attempt, bound_plan, found, would, mode.approver_presence)

    def _evaluate_limits(
        self,
        session: SessionState,
        attempt: Attempt,
        bound_plan: BoundPlan,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add the violations of halts, limits and bans."""
        if session.halt_entry or session.parent is not None:
            found += halt_violations(session.halted_by())
        if session.refused_batches:
            found += session.refused_batches.violations(attempt)
        state_changes, has_refusals = session.state_changes, session.refused_attempts
        for limit, tracker in bound_plan.limits:
            if not (tracker or limit.always_evaluated):
                continue
            refused_count = (
                session.count_refusals(limit, attempt) if has_refusals and limit.escalates else 0
            )
            violation = limit.evaluate(tracker, attempt, state_changes, refused_count)
            # An approved call had to wait for a person: its refusals are no reason to give up.
            advises = refused_count and violation is not None and violation.effect is Effect.ADVISE
            if advises and attempt.approval_fingerprint in session.approvals.received:
                violation = limit.evaluate(tracker, attempt, state_changes, 0)
            if violation is not None:
                (would if limit.observe else found).append(violation)
        if session.bans.active:
            self._evaluate_bans(session, attempt, found, would)

    def _combine(
        self,
        state: EvaluatorState,
        attempt: Attempt,
        bound_plan: BoundPlan,
        found: list[Violation],
        would: list[Violation],
        presence: ApproverPresence,
    ) -> Evaluation:
        """Drop what is waived or approved, and take the strongest effect of the rest."""
        session, exceptions = attempt.session, self.exceptions
        waived: tuple[Waiver, ...] = ()
        if exceptions is not None:
            found, waived = exceptions.waive(attempt, found)
            would, observed = exceptions.waive(attempt, would)
            waived += observed
        approvals, requirements = session.approvals, self.approval_requirements
        fingerprint, at = attempt.approval_fingerprint, attempt.at
        if approvals.received:
            found = [
                one
                for one in found
                if one.effect is not Effect.ASK
                or not approvals.is_approved(fingerprint, requirements.get(one.id), at)
            ]
        found = approvals.refuse_denied(found, fingerprint, at)
        grants = state.grants.lift(found, attempt, requirements, self.patterns)
        effect = max(found, key=strength_of).effect if found else Effect.ALLOW
        if effect < Effect.ASK:
            return Evaluation(
                effect,
                sort_by_strength(found),
                tuple(would),
                attempt.errors,
                grants=grants,
                waived=waived,
            )
        unapproved = effect is Effect.ASK and all(
            approvals.lets_run_unanswered(fingerprint, requirements.get(violation.id), presence, at)
            for violation in found
            if violation.effect is Effect.ASK
        )
        plan, streak = bound_plan.plan, bound_plan.refusal_streak
        awaiting = bound_plan.limits_awaiting_probe(attempt.at)
        insists = any(one.effect >= Effect.ASK and one.id not in awaiting for one in found)
        if plan.refusals is not None and streak is not None and insists and not unapproved:
            refusals = plan.refusals.evaluate(streak, attempt)
            if refusals is not None and not (
                exceptions is not None and exceptions.find(refusals.id, attempt)
            ):
                (would if plan.refusals.observe else found).append(refusals)
        ordered = sort_by_strength(found)
        remaining = {
            budget.id: amount
            for budget in plan.budgets
            if (amount := budget.remaining(state.ledger, attempt)) is not None
        }
        time_budgets = tuple([one.id for one in plan.budgets if one.kind == "time"])
        units = {one.id: one.unit for one in plan.budgets if one.id in remaining}
        return Evaluation(
            ordered[0].effect,
            ordered,
            tuple(would),
            attempt.errors,
            unapproved,
            remaining,
            time_budgets,
            grants,
            waived,
            units,
        )

    def _evaluate_bans(
        self,
        session: SessionState,
        attempt: Attempt,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add the violations of bans, each in place of one of its limit."""
        by_id = {violation.id: violation for violation in found}
        for ban in session.bans.active.values():
            limit = ban.limit
            if not ban.applies_to(attempt) or (
                limit.until == "progress"
                and limit.is_next_probe(session.get_tracker(limit), attempt)
            ):
                continue
            other = by_id.get(limit.id)
            refused_count = session.count_refusals_of(limit.id, ban.subject)
            violation = session.bans.violation(ban, attempt, refused_count, other)
            if violation is None:
                continue
            if other is not None:
                found.remove(other)
            by_id[limit.id] = violation
            (would if limit.observe else found).append(violation)

    def evaluate_result(self, attempt: Attempt, event: Completed) -> CallResult:
        """Classify the result of an attempt that is marked as completed; find what it charges."""
        last = attempt.session.last_results.get(attempt.fingerprint) if self.reads_changed else None
        outcome = self.outcome_classifier.classify(event, attempt, last)
        charges = self._settle(attempt, outcome) if attempt.charges else ()
        result = CallResult(attempt, event, outcome, charges)
        if self.marks and outcome.state != "cancelled":
            events = attempt.bound_plan.plan.marks
            if events is not None:
                result.marks = events.find_set(attempt)
        return result

    def _settle(self, attempt: Attempt, outcome: Outcome) -> tuple[Charge, ...]:
        charges = [
            settled
            for charge in attempt.charges
            if (settled := self.budgets[charge.budget].settle(charge, attempt, outcome)) is not None
        ]
        return tuple(charges)
