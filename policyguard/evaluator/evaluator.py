"""The way of a call: classify, then ask limits, budgets and rules, and take the strongest answer.

Everything here is a pure function of the policy, the state and the call: no clock, no I/O. State
changes only in `fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from policyguard.evaluator.activation import ActivationContext
from policyguard.evaluator.approvals import ApprovalRequirement
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.engine_state import EngineState
from policyguard.evaluator.evaluation import ALLOWED, ApproverPresence, Evaluation, GuardMode
from policyguard.evaluator.outcome_classifier import OutcomeClassifier
from policyguard.evaluator.plan import BoundPlan, ClassCandidates, Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.model.amounts import to_units
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError, NonPlainArgumentsError
from policyguard.model.event import Charge, Completed
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Bounds

HALTED = "session/halted"
"""What is said of a call in a session that is halted, or whose ancestor is."""


class CheckTags(Protocol):
    """Completes a session's tags with their defaults; a call's (`overlay`) may be any of them.

    Raises `ValueError`, naming each that is missing, or of another type or value than declared.
    """

    def __call__(self, given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        """The tags, copied."""
        ...


CallIdentity = tuple[str, str, tuple[float, ...]]
"""What makes a call the same as another: its fingerprint.

For a call with tolerant numbers also the fingerprint without them, and them.
"""


class Evaluator:
    """A compiled policy.

    `candidates` and `plan` look up what applies to a tool (and server, agent, class), `known` the
    plan of a tool whose calls are all of one class; `identify`
    gives a call's identity or raises `ArgumentsError`; `close` tells whether tolerant numbers are
    close to an earlier call's; `approvals` are the terms of rules that ask, `refusals` the ids of
    limits of that kind; `ground` is what expressions see of every call.
    """

    def __init__(
        self,
        *,
        name: str,
        digest: str,
        observe_only: bool,
        allow_on_internal_error: bool,
        bounds: Bounds,
        candidates: Callable[[str, str], ClassCandidates],
        plan: Callable[[str, str, str, str], Plan],
        plan_for_tool: Callable[[str, str, str], Plan | None],
        identify: Callable[[str, str, dict[str, Any]], CallIdentity],
        within_tolerance: Callable[[tuple[float, ...], tuple[float, ...]], bool],
        activation_context: ActivationContext,
        outcome_classifier: OutcomeClassifier,
        budgets: dict[str, CompiledBudget],
        approval_requirements: dict[str, ApprovalRequirement],
        refusal_limits: tuple[str, ...],
        check_tags: CheckTags,
        reads_counts: bool,
        reads_changed: bool,
    ) -> None:
        self.name = name
        self.digest = digest
        self.observe_only = observe_only
        self.allow_on_internal_error = allow_on_internal_error
        self.bounds = bounds
        self.candidates = candidates
        self.plan = plan
        self.plan_for_tool = plan_for_tool
        self.identify = identify
        self.within_tolerance = within_tolerance
        self.activation_context = activation_context
        self.outcome_classifier = outcome_classifier
        self.budgets = budgets
        self.approval_requirements = approval_requirements
        self.refusal_limits = refusal_limits
        self.check_tags = check_tags
        self.reads_counts = reads_counts
        self.remembers_calls = reads_counts or activation_context.reads_previous
        self.reads_call_details = (
            activation_context.reads_previous or activation_context.extract_targets is not None
        )
        self.reads_changed = reads_changed

    def prepare(self, attempt: Attempt) -> BoundPlan:
        """Classify a call. Raises `ArgumentsError` for arguments that cannot be judged."""
        session = attempt.session
        tool, server, at = attempt.tool, attempt.server, attempt.at
        if at is not None and session.now is not None and at < session.now:
            attempt.at = session.now
        try:
            fingerprint, like, numbers = self.identify(tool, server, attempt.args)
        except NonPlainArgumentsError as odd:
            attempt.args = odd.plain
            fingerprint, like, numbers = self.identify(tool, server, attempt.args)
        if like:
            attempt.loose_fingerprint, attempt.numbers = like, numbers
            attempt.exact_fingerprint = fingerprint
            fingerprint = self._match_tolerant_call(session, fingerprint, like, numbers)
        attempt.fingerprint = fingerprint
        if self.reads_call_details:
            self._find_call_details(session, attempt)
        walk = session.plans_by_tool.get((server, tool) if server else tool)
        if walk is None:
            walk = self._bind_plan(session, attempt)
        attempt.bound_plan = walk
        plan = walk.plan
        attempt.class_ = plan.class_
        if plan.needs_more:
            self._find_plan_details(attempt, plan)
        return walk

    def _find_call_details(self, session: SessionState, attempt: Attempt) -> None:
        """Find what only some policies ask about."""
        if self.activation_context.reads_previous:
            attempt.previous = session.previous_args.get(attempt.tool, attempt.previous)
        if self.activation_context.extract_targets is not None:
            attempt.targets = self.activation_context.extract_targets(attempt.args)

    def _bind_plan(self, session: SessionState, attempt: Attempt) -> BoundPlan:
        """What applies to a call: known by its tool, or by the class that its arguments make it."""
        tool, server = attempt.tool, attempt.server
        plan = self.plan_for_tool(tool, server, session.agent)
        if plan is not None:
            walk = session.bind_plan(plan)
            session.plans_by_tool[(server, tool) if server else tool] = walk
            return walk
        attempt.class_ = class_ = self.candidates(tool, server).classify(attempt)
        return session.bind_plan(self.plan(tool, server, session.agent, class_))

    def _find_plan_details(self, attempt: Attempt, plan: Plan) -> None:
        """Find what only some kinds of calls have."""
        if not plan.kind_only:  # it reads what may be another thing when the result is there
            attempt.state_changing = plan.is_state_changing(attempt)
        if plan.keyed_limits:
            self._find_limit_keys(attempt, plan)
        if plan.timeout is not None:
            attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by

    def _find_limit_keys(self, attempt: Attempt, plan: Plan) -> None:
        """Find by what else than its fingerprint a limit tells the call."""
        keys = {}
        for limit in plan.keyed_limits:
            assert limit.key is not None  # noqa: S101 - that is what makes it keyed
            try:
                keys[limit.id] = limit.key(attempt)
            except ExpressionError as error:
                attempt.add_error(limit.id, error)
        attempt.keys = keys

    def _match_tolerant_call(
        self, session: SessionState, fingerprint: str, like: str, numbers: tuple[float, ...]
    ) -> str:
        """A call with numbers close to those of an earlier one has that one's fingerprint.

        Closeness is always to the first call of its kind, so it cannot drift step by step.
        """
        for known, anchor in session.tolerant_calls.get(like, ()):
            if self.within_tolerance(known, numbers):
                return anchor
        return fingerprint

    def evaluate(
        self,
        state: EngineState,
        attempt: Attempt,
        walk: BoundPlan,
        learned: Sequence[Violation],
        mode: GuardMode,
    ) -> Evaluation:
        """Collect every violation; the strongest effect wins, whatever the order.

        `learned` is what constraints have against the call.
        """
        session, plan = attempt.session, walk.plan
        asked = walk.must_evaluate or not session.on_fast_path
        if not asked:
            for calls in walk.watched:
                if attempt.fingerprint in calls:
                    asked = True
                    break
        if not (asked or learned or plan.budgets or plan.rules or attempt.errors):
            return ALLOWED
        found = list(learned)
        would: list[Violation] = []
        if asked:
            self._evaluate_limits(session, attempt, walk, found, would)
        for budget in plan.budgets:
            violation = budget.evaluate(state.ledger, attempt)
            if violation is not None:
                (would if budget.observe else found).append(violation)
        if plan.rules:
            for rule in plan.rules.possible_matches(attempt):
                if attempt.at is None and rule.reads_time:
                    continue
                violation = rule.evaluate(attempt)
                if violation is not None:
                    (would if rule.observe else found).append(violation)
        if not (found or would or attempt.errors):
            return ALLOWED
        if mode.observe:
            would, found = found + would, []
        return self._combine(state, attempt, walk, found, would, mode.approver_presence)

    def _evaluate_limits(
        self,
        session: SessionState,
        attempt: Attempt,
        walk: BoundPlan,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add what limits, and what they have brought about, have against a call."""
        if session.halt_entry or session.parent is not None:
            found += _halt_violations(session.halted_by())
        changes, insisting = session.state_changes, session.refused_attempts
        for limit, tracker in walk.limits:
            if not (tracker or limit.always_evaluated):
                continue
            insisted = (
                session.count_refusals(limit, attempt) if insisting and limit.escalates else 0
            )
            violation = limit.evaluate(tracker, attempt, changes, insisted)
            if violation is not None:
                (would if limit.observe else found).append(violation)
        if session.bans.active:
            self._evaluate_bans(session, attempt, found, would)

    def _combine(
        self,
        state: EngineState,
        attempt: Attempt,
        walk: BoundPlan,
        found: list[Violation],
        would: list[Violation],
        attendance: ApproverPresence,
    ) -> Evaluation:
        """The verdict on what was found: what is waived goes, the strongest effect wins."""
        session = attempt.session
        if session.approvals.received:
            fingerprint, at = attempt.approval_fingerprint, attempt.at
            found = [one for one in found if not self.is_waived(session, fingerprint, one, at)]
        if not found:
            return Evaluation(Effect.ALLOW, (), tuple(would), attempt.errors)
        effect = max(found, key=_strength).effect
        if effect < Effect.ASK:
            return Evaluation(effect, _sort_by_strength(found), tuple(would), attempt.errors)
        passes = effect is Effect.ASK and all(
            self._runs_unapproved(session, attempt, one, attendance)
            for one in found
            if one.effect is Effect.ASK
        )
        plan, refused = walk.plan, walk.refusal_streak
        if plan.refusals is not None and refused is not None and not passes:
            insisting = plan.refusals.evaluate(refused, attempt)
            if insisting is not None:
                (would if plan.refusals.observe else found).append(insisting)
        ordered = _sort_by_strength(found)
        left = {
            budget.id: left
            for budget in plan.budgets
            if (left := budget.remaining(state.ledger, attempt)) is not None
        }
        return Evaluation(ordered[0].effect, ordered, tuple(would), attempt.errors, passes, left)

    def is_waived(
        self, session: SessionState, fingerprint: str, violation: Violation, at: int | None
    ) -> bool:
        """Whether a violation asks about a call, and enough people have said yes to it."""
        if violation.effect is not Effect.ASK:
            return False
        return session.approvals.is_approved(
            fingerprint, self.approval_requirements.get(violation.id), at
        )

    def _runs_unapproved(
        self,
        session: SessionState,
        attempt: Attempt,
        violation: Violation,
        attendance: ApproverPresence,
    ) -> bool:
        """Whether a question that nobody has answered lets the call run."""
        terms = self.approval_requirements.get(violation.id)
        if terms is None or not terms.allow_unanswered or attendance == "never":
            return False
        if attendance == "nobody":
            return True
        return session.approvals.is_expired(attempt.approval_fingerprint, terms.within, attempt.at)

    def _evaluate_bans(
        self,
        session: SessionState,
        attempt: Attempt,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add what limits have shut off, where they do not say as much of the call themselves."""
        told = {violation.id: violation for violation in found}
        for ban in session.bans.active.values():
            if not ban.applies_to(attempt):
                continue
            violation = ban.violation(session.count_refusals_of(ban.limit.id, ban.subject))
            said = told.get(ban.limit.id)
            if violation is None or (said is not None and said.effect >= violation.effect):
                continue
            if said is not None:  # of one limit the stronger word
                found.remove(said)
            told[ban.limit.id] = violation
            (would if ban.limit.observe else found).append(violation)

    def evaluate_result(
        self, attempt: Attempt, event: Completed, at: int | None
    ) -> tuple[Outcome, tuple[Charge, ...]]:
        """Judge a result that came at `at` (ns), and say what it draws from post-paid budgets.

        What fails meanwhile are the attempt's faults from then on.
        """
        attempt.mark_completed(at)
        last = attempt.session.last_results.get(attempt.fingerprint) if self.reads_changed else None
        outcome = self.outcome_classifier.classify(event, attempt, last)
        if not attempt.charges:
            return outcome, ()
        charges = []
        for charge in attempt.charges:
            further = self.budgets[charge.budget].settle(charge, attempt, outcome)
            if further is not None:
                charges.append(further)
        return outcome, tuple(charges)

    def charges_for_spend(
        self, session: SessionState, tokens: int, cost: float
    ) -> tuple[Charge, ...]:
        """What tokens and cost used between calls draw.

        They draw from budgets of all calls, not from those of some.
        """
        charges = []
        for budget in self.budgets.values():
            amount = {"tokens": tokens, "cost": cost}.get(budget.kind, 0)
            if amount and not budget.selective:
                drawn = to_units(amount)
                if drawn is None:
                    drawn = budget.max  # what cannot be reckoned has used everything
                charges += [Charge(budget.id, key, drawn) for _, key in budget.owners(session)]
        return tuple(charges)


def _sort_by_strength(found: list[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(found, key=_strength, reverse=True))


def _strength(violation: Violation) -> int:
    return violation.effect.strength


def _halt_violations(by: str) -> list[Violation]:
    if not by:
        return []
    halted = Violation(
        HALTED,
        Effect.HALT,
        "halted",
        f"the run was halted by {by}",
        "tell the person what was done and what is left to do",
    )
    return [halted]
