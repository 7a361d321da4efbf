"""The way of a call: classify, then ask limits, budgets and rules, and take the strongest answer.

Everything here is a pure function of the policy, the state and the call: no clock, no I/O. State
changes only in `fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from policyguard.evaluator.approvals import Terms
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.observe import Observer
from policyguard.evaluator.plan import Candidates, Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.evaluator.verdict import ALLOWED, Attendance, Stance, Verdict
from policyguard.evaluator.view import Ground
from policyguard.evaluator.walk import Walk
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError, OddArgumentsError
from policyguard.model.event import Charge, Completed
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Bounds
from policyguard.model.quantity import units

HALTED = "session/halted"
"""What is said of a call in a session that is halted, or whose ancestor is."""


class CheckTags(Protocol):
    """Completes a session's tags with their defaults; a call's (`overlay`) may be any of them.

    Raises `ValueError`, naming each that is missing, or of another type or value than declared.
    """

    def __call__(self, given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        """The tags, copied."""
        ...


Identity = tuple[str, str, tuple[float, ...]]
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
        candidates: Callable[[str, str], Candidates],
        plan: Callable[[str, str, str, str], Plan],
        known: Callable[[str, str, str], Plan | None],
        identify: Callable[[str, str, dict[str, Any]], Identity],
        close: Callable[[tuple[float, ...], tuple[float, ...]], bool],
        ground: Ground,
        observer: Observer,
        budgets: dict[str, Budget],
        approvals: dict[str, Terms],
        refusals: tuple[str, ...],
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
        self.known = known
        self.identify = identify
        self.close = close
        self.ground = ground
        self.observer = observer
        self.budgets = budgets
        self.approvals = approvals
        self.refusals = refusals
        self.check_tags = check_tags
        self.reads_counts = reads_counts
        self.remembers = reads_counts or ground.reads_previous
        self.looks_further = ground.reads_previous or ground.targets is not None
        self.reads_changed = reads_changed

    def prepare(self, attempt: Attempt) -> Walk:
        """Classify a call. Raises `ArgumentsError` for arguments that cannot be judged."""
        session = attempt.session
        tool, server, at = attempt.tool, attempt.server, attempt.at
        if at is not None and session.now is not None and at < session.now:
            attempt.at = session.now
        try:
            fingerprint, like, numbers = self.identify(tool, server, attempt.args)
        except OddArgumentsError as odd:
            attempt.args = odd.plain
            fingerprint, like, numbers = self.identify(tool, server, attempt.args)
        if like:
            attempt.like, attempt.numbers = like, numbers
            attempt.exact = fingerprint
            fingerprint = self._anchored(session, fingerprint, like, numbers)
        attempt.fingerprint = fingerprint
        if self.looks_further:
            self._look_further(session, attempt)
        walk = session.known.get((server, tool) if server else tool)
        if walk is None:
            walk = self._walk(session, attempt)
        attempt.walk = walk
        plan = walk.plan
        attempt.class_ = plan.class_
        if plan.further:
            self._find_further(attempt, plan)
        return walk

    def _look_further(self, session: SessionState, attempt: Attempt) -> None:
        """Find what only some policies ask about."""
        if self.ground.reads_previous:
            attempt.previous = session.previous.get(attempt.tool, attempt.previous)
        if self.ground.targets is not None:
            attempt.targets = self.ground.targets(attempt.args)

    def _walk(self, session: SessionState, attempt: Attempt) -> Walk:
        """What applies to a call: known by its tool, or by the class that its arguments make it."""
        tool, server = attempt.tool, attempt.server
        plan = self.known(tool, server, session.agent)
        if plan is not None:
            walk = session.walk(plan)
            session.known[(server, tool) if server else tool] = walk
            return walk
        attempt.class_ = class_ = self.candidates(tool, server).choose(attempt)
        return session.walk(self.plan(tool, server, session.agent, class_))

    def _find_further(self, attempt: Attempt, plan: Plan) -> None:
        """Find what only some kinds of calls have."""
        if not plan.alike:  # it reads what may be another thing when the result is there
            attempt.changing = plan.changes(attempt)
        if plan.keyed:
            self._key(attempt, plan)
        if plan.timeout is not None:
            attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by

    def _key(self, attempt: Attempt, plan: Plan) -> None:
        """Find by what else than its fingerprint a limit tells the call."""
        keys = {}
        for limit in plan.keyed:
            assert limit.key is not None  # noqa: S101 - that is what makes it keyed
            try:
                keys[limit.id] = limit.key(attempt)
            except ExpressionError as error:
                attempt.fault(limit.id, error)
        attempt.keys = keys

    def _anchored(
        self, session: SessionState, fingerprint: str, like: str, numbers: tuple[float, ...]
    ) -> str:
        """A call with numbers close to those of an earlier one has that one's fingerprint.

        Closeness is always to the first call of its kind, so it cannot drift step by step.
        """
        for known, anchor in session.anchors.get(like, ()):
            if self.close(known, numbers):
                return anchor
        return fingerprint

    def judge(
        self,
        state: State,
        attempt: Attempt,
        walk: Walk,
        learned: Sequence[Violation],
        stance: Stance,
    ) -> Verdict:
        """Collect every violation; the strongest effect wins, whatever the order.

        `learned` is what constraints have against the call.
        """
        session, plan = attempt.session, walk.plan
        asked = walk.asked or not session.calm
        if not asked:
            for calls in walk.seen:
                if attempt.fingerprint in calls:
                    asked = True
                    break
        if not (asked or learned or plan.budgets or plan.rules or attempt.faults):
            return ALLOWED
        found = list(learned)
        would: list[Violation] = []
        if asked:
            self._limited(session, attempt, walk, found, would)
        for budget in plan.budgets:
            violation = budget.judge(state.book, attempt)
            if violation is not None:
                (would if budget.observe else found).append(violation)
        if plan.rules:
            for rule in plan.rules.doubtful(attempt):
                if attempt.at is None and rule.reads_time:
                    continue
                violation = rule.judge(attempt)
                if violation is not None:
                    (would if rule.observe else found).append(violation)
        if not (found or would or attempt.faults):
            return ALLOWED
        if stance.observe:
            would, found = found + would, []
        return self._weigh(state, attempt, walk, found, would, stance.attendance)

    def _limited(
        self,
        session: SessionState,
        attempt: Attempt,
        walk: Walk,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add what limits, and what they have brought about, have against a call."""
        if session.halted or session.parent is not None:
            found += _halted(session.halted_by())
        changes, insisting = session.changes, session.insisted
        for limit, tracker in walk.limits:
            if not (tracker or limit.always):
                continue
            insisted = session.insists(limit, attempt) if insisting and limit.climbs else 0
            violation = limit.judge(tracker, attempt, changes, insisted)
            if violation is not None:
                (would if limit.observe else found).append(violation)
        if session.bans.held:
            self._banned(session, attempt, found, would)

    def _weigh(
        self,
        state: State,
        attempt: Attempt,
        walk: Walk,
        found: list[Violation],
        would: list[Violation],
        attendance: Attendance,
    ) -> Verdict:
        """The verdict on what was found: what is waived goes, the strongest effect wins."""
        session = attempt.session
        if session.approvals.given:
            fingerprint, at = attempt.own, attempt.at
            found = [one for one in found if not self.waived(session, fingerprint, one, at)]
        if not found:
            return Verdict(Effect.ALLOW, (), tuple(would), attempt.faults)
        effect = max(found, key=_strength).effect
        if effect < Effect.ASK:
            return Verdict(effect, _ordered(found), tuple(would), attempt.faults)
        passes = effect is Effect.ASK and all(
            self._unanswered(session, attempt, one, attendance)
            for one in found
            if one.effect is Effect.ASK
        )
        plan, refused = walk.plan, walk.refused
        if plan.refusals is not None and refused is not None and not passes:
            insisting = plan.refusals.judge(refused, attempt)
            if insisting is not None:
                (would if plan.refusals.observe else found).append(insisting)
        ordered = _ordered(found)
        left = {
            budget.id: left
            for budget in plan.budgets
            if (left := budget.left(state.book, attempt)) is not None
        }
        return Verdict(ordered[0].effect, ordered, tuple(would), attempt.faults, passes, left)

    def waived(
        self, session: SessionState, fingerprint: str, violation: Violation, at: int | None
    ) -> bool:
        """Whether a violation asks about a call, and enough people have said yes to it."""
        if violation.effect is not Effect.ASK:
            return False
        return session.approvals.waives(fingerprint, self.approvals.get(violation.id), at)

    def _unanswered(
        self,
        session: SessionState,
        attempt: Attempt,
        violation: Violation,
        attendance: Attendance,
    ) -> bool:
        """Whether a question that nobody has answered lets the call run."""
        terms = self.approvals.get(violation.id)
        if terms is None or not terms.otherwise_allow or attendance == "never":
            return False
        if attendance == "nobody":
            return True
        return session.approvals.expired(attempt.own, terms.within, attempt.at)

    def _banned(
        self,
        session: SessionState,
        attempt: Attempt,
        found: list[Violation],
        would: list[Violation],
    ) -> None:
        """Add what limits have shut off, where they do not say as much of the call themselves."""
        told = {violation.id: violation for violation in found}
        for ban in session.bans.held.values():
            if not ban.binds(attempt):
                continue
            violation = ban.violation(session.insists_on(ban.limit.id, ban.subject))
            said = told.get(ban.limit.id)
            if violation is None or (said is not None and said.effect >= violation.effect):
                continue
            if said is not None:  # of one limit the stronger word
                found.remove(said)
            told[ban.limit.id] = violation
            (would if ban.limit.observe else found).append(violation)

    def settle(
        self, attempt: Attempt, event: Completed, at: int | None
    ) -> tuple[Outcome, tuple[Charge, ...]]:
        """Judge a result that came at `at` (ns), and say what it draws from post-paid budgets.

        What fails meanwhile are the attempt's faults from then on.
        """
        attempt.look_again(at)
        last = attempt.session.results.get(attempt.fingerprint) if self.reads_changed else None
        outcome = self.observer.observe(event, attempt, last)
        if not attempt.charges:
            return outcome, ()
        charges = []
        for charge in attempt.charges:
            further = self.budgets[charge.budget].settle(charge, attempt, outcome)
            if further is not None:
                charges.append(further)
        return outcome, tuple(charges)

    def spend(self, session: SessionState, tokens: int, cost: float) -> tuple[Charge, ...]:
        """What tokens and cost used between calls draw.

        They draw from budgets of all calls, not from those of some.
        """
        charges = []
        for budget in self.budgets.values():
            amount = {"tokens": tokens, "cost": cost}.get(budget.kind, 0)
            if amount and not budget.selective:
                drawn = units(amount)
                if drawn is None:
                    drawn = budget.max  # what cannot be reckoned has used everything
                charges += [Charge(budget.id, key, drawn) for _, key in budget.scopes(session)]
        return tuple(charges)


def _ordered(found: list[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(found, key=_strength, reverse=True))


def _strength(violation: Violation) -> int:
    return violation.effect.strength


def _halted(by: str) -> list[Violation]:
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
