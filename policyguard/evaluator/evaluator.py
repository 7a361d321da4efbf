"""The way of a call: classify, then ask limits, budgets and rules, and take the strongest answer.

Everything here is a pure function of the policy, the state and the call: no clock, no I/O. State
changes only in `fold`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from policyguard.evaluator.account import UNIT
from policyguard.evaluator.approvals import Terms
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.bans import Ban
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.observe import Observer
from policyguard.evaluator.plan import Candidates, Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.evaluator.view import Expression, View
from policyguard.model.decision import Fault, Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Charge, Completed
from policyguard.model.outcome import Outcome
from policyguard.model.policy import Bounds


class Identity(NamedTuple):
    """What makes a call the same as another: its fingerprint.

    For a call with tolerant numbers also the fingerprint without them (`like`), and them.
    """

    fingerprint: str
    like: str = ""
    numbers: tuple[float, ...] = ()


class Request(NamedTuple):
    """A call as its caller puts it."""

    tool: str
    args: dict[str, Any]
    server: str = ""
    batch: str = ""
    tags: dict[str, Any] = {}  # noqa: RUF012 - a NamedTuple's default, never written to
    hints: dict[str, bool] = {}  # noqa: RUF012 - a NamedTuple's default, never written to
    estimate: dict[str, float] = {}  # noqa: RUF012 - a NamedTuple's default, never written to


Attendance = Literal["nobody", "somebody", "never"]
"""Who may be asked: nobody is there, somebody is, or (in a replay) it is not asked at all."""


class Verdict(NamedTuple):
    """What the policy says to an attempt. `would` comes from entries in observe mode.

    `passes`: it asks, and what it says of unanswered questions lets the call run. `left` is what
    remains of the budgets that a refused call would have drawn on.
    """

    effect: Effect
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    faults: tuple[Fault, ...]
    passes: bool = False
    left: dict[str, float] = {}  # noqa: RUF012 - a NamedTuple's default, never written to


class Evaluator:
    """A compiled policy.

    `candidates` and `plan` look up what applies to a tool (and server, agent, class); `identify`
    gives a call's identity or raises `ArgumentsError`; `close` tells whether tolerant numbers are
    close to an earlier call's; `approvals` are the terms of rules that ask, `refusals` the ids of
    limits of that kind; `derive` computes what expressions read of a call beyond its plain fields;
    `instant` and `span` turn nanoseconds into what expressions see as times.
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
        identify: Callable[[str, str, dict[str, Any]], Identity],
        close: Callable[[tuple[float, ...], tuple[float, ...]], bool],
        targets: Callable[[dict[str, Any]], tuple[str, ...]] | None,
        derive: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...],
        observer: Observer,
        budgets: dict[str, Budget],
        approvals: dict[str, Terms],
        refusals: tuple[str, ...],
        lists: dict[str, Any],
        params: dict[str, Any],
        check_tags: Callable[[dict[str, Any]], dict[str, Any]],
        reads_elapsed: bool,
        reads_counts: bool,
        reads_previous: bool,
        reads_changed: bool,
        instant: Callable[[int], Any],
        span: Callable[[int], Any],
    ) -> None:
        self.name = name
        self.digest = digest
        self.observe_only = observe_only
        self.allow_on_internal_error = allow_on_internal_error
        self.bounds = bounds
        self.candidates = candidates
        self.plan = plan
        self.identify = identify
        self.close = close
        self.targets = targets
        self.derive = derive
        self.observer = observer
        self.budgets = budgets
        self.approvals = approvals
        self.refusals = refusals
        self.lists = lists
        self.params = params
        self.check_tags = check_tags
        self.reads_elapsed = reads_elapsed
        self.reads_counts = reads_counts
        self.reads_previous = reads_previous
        self.reads_changed = reads_changed
        self.instant = instant
        self.span = span

    def prepare(
        self, session: SessionState, request: Request, at: int | None
    ) -> tuple[Attempt, Plan, View]:
        """Classify a call. Raises `ArgumentsError` for arguments that cannot be judged."""
        attempt = Attempt()
        attempt.at = at = session.clamp(at)
        attempt.tool = tool = request.tool
        attempt.args = args = request.args
        attempt.server = request.server
        attempt.batch = request.batch
        attempt.tags = request.tags
        attempt.hints = request.hints
        attempt.estimate = request.estimate
        attempt.previous = session.previous.get(tool, {}) if self.reads_previous else {}
        attempt.keys = {}
        attempt.charges = []
        attempt.asks = []
        attempt.insisted = []
        attempt.faults = []
        attempt.trials = ()
        attempt.radius = ""
        identity = self.identify(tool, request.server, args)
        attempt.like, attempt.numbers = identity.like, identity.numbers
        attempt.fingerprint = self._anchored(session, identity)
        attempt.targets = self.targets(args) if self.targets is not None else ()
        view = self._view(session, attempt, at)
        candidates = self.candidates(tool, request.server)
        class_ = candidates.fixed
        if class_ is None:
            class_ = candidates.choose(view, attempt.faults)
        view.call["class"] = attempt.class_ = class_
        plan = self.plan(tool, request.server, session.agent, class_)
        attempt.timeout, attempt.timeout_by = plan.timeout, plan.timeout_by
        changing = plan.changing
        attempt.changing = changing if isinstance(changing, bool) else _may_change(changing, view)
        for limit in plan.keyed:
            assert limit.key is not None  # noqa: S101 - that is what makes it keyed
            try:
                attempt.keys[limit.id] = limit.key(attempt, view)
            except ExpressionError as error:
                attempt.faults.append(Fault(limit.id, str(error)))
        return attempt, plan, view

    def _anchored(self, session: SessionState, identity: Identity) -> str:
        """A call with numbers close to those of an earlier one has that one's fingerprint.

        Closeness is always to the first call of its kind, so it cannot drift step by step.
        """
        if identity.like:
            for numbers, fingerprint in session.anchors.get(identity.like, ()):
                if self.close(numbers, identity.numbers):
                    return fingerprint
        return identity.fingerprint

    def _view(self, session: SessionState, attempt: Attempt, at: int | None) -> View:
        view = View()
        tags = session.facts["tags"]
        view.tags = tags = {**tags, **attempt.tags} if attempt.tags else tags
        view.call = call = {
            "tool": attempt.tool,
            "server": attempt.server,
            "class": "",
            "agent": session.agent,
            "session": session.id,
            "batch": attempt.batch,
            "args": attempt.args,
            "tags": tags,
            "hints": attempt.hints,
            "targets": list(attempt.targets),
        }
        if self.reads_previous:
            call["previous"] = attempt.previous
        for name, derive in self.derive:
            call[name] = derive(attempt.args)
        view.session = facts = session.facts
        facts["running"] = len(session.flights)
        view.lists = self.lists
        view.params = self.params
        view.outcome = None
        view.now = self.instant(at) if at is not None else None
        if self.reads_elapsed:
            begun = session.started_at
            facts["elapsed"] = (
                self.span(at - begun) if at is not None and begun is not None else None
            )
        return view

    def judge(
        self,
        state: State,
        session: SessionState,
        attempt: Attempt,
        plan: Plan,
        view: View,
        learned: list[Violation],
        *,
        observe: bool,
        attendance: Attendance = "nobody",
    ) -> Verdict:
        """Collect every violation; the strongest effect wins, whatever the order.

        `learned` is what constraints have against the call.
        With `observe` nothing is refused: what would have been stands in `would`.
        """
        found, would = self._collect(state, session, attempt, plan, view, learned)
        if found and session.approvals.given:
            fingerprint, at = attempt.fingerprint, attempt.at
            found = [one for one in found if not self.waived(session, fingerprint, one, at)]
        if observe:
            would, found = found + would, []
        faults = attempt.faults
        if not found:
            return Verdict(Effect.ALLOW, (), tuple(would), tuple(faults))
        effect = max(found, key=_strength).effect
        if effect < Effect.ASK:
            return Verdict(effect, _ordered(found), tuple(would), tuple(faults))
        if plan.refusals is not None:
            insisting = plan.refusals.judge(session.tracker(plan.refusals), attempt)
            if insisting is not None:
                (would if plan.refusals.observe else found).append(insisting)
        ordered = _ordered(found)
        passes = ordered[0].effect is Effect.ASK and all(
            self._unanswered(session, attempt, one, attendance)
            for one in found
            if one.effect is Effect.ASK
        )
        left = {
            budget.id: left
            for budget in plan.budgets
            if (left := budget.left(state.book, session, attempt, view)) is not None
        }
        return Verdict(ordered[0].effect, ordered, tuple(would), tuple(faults), passes, left)

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
        return session.approvals.expired(attempt.fingerprint, terms.within, attempt.at)

    def _collect(
        self,
        state: State,
        session: SessionState,
        attempt: Attempt,
        plan: Plan,
        view: View,
        learned: list[Violation],
    ) -> tuple[list[Violation], list[Violation]]:
        """Everything there is against the attempt, and what observing entries have."""
        faults = attempt.faults
        found = learned
        would: list[Violation] = []
        halted = session.halted_by()
        if halted:
            found.append(_halted(halted))
        for limit in plan.limits:
            insisted = session.insists(limit, attempt) if limit.climbs and session.insisted else 0
            tracker = session.tracker(limit)
            violation = limit.judge(tracker, attempt, session.changes, insisted)
            if violation is not None:
                (would if limit.observe else found).append(violation)
        if session.bans.held:
            told = {violation.id for violation in found}
            for ban in session.bans.held.values():
                violation = self._banned(ban, session, attempt)
                if violation is not None and violation.id not in told:
                    (would if ban.limit.observe else found).append(violation)
        for budget in plan.budgets:
            violation = budget.judge(state.book, session, attempt, view, faults)
            if violation is not None:
                (would if budget.observe else found).append(violation)
        for rule in plan.rules:
            if attempt.at is None and rule.reads_time:
                continue
            violation = rule.judge(view, faults)
            if violation is not None:
                (would if rule.observe else found).append(violation)
        return found, would

    def _banned(self, ban: Ban, session: SessionState, attempt: Attempt) -> Violation | None:
        if not ban.binds(attempt):
            return None
        return ban.violation(session.insists_on(ban.limit.id, ban.subject))

    def settle(
        self, session: SessionState, attempt: Attempt, event: Completed, last: str | None
    ) -> tuple[Outcome, tuple[Charge, ...], View, list[Fault]]:
        """Judge a result: the outcome, what it draws from post-paid budgets, and the view of it."""
        faults: list[Fault] = []
        view = self._view(session, attempt, session.clamp(event.at))
        view.call["class"] = attempt.class_
        outcome = self.observer.observe(event, view, last, faults)
        charges = []
        for charge in attempt.charges:
            further = self.budgets[charge.budget].settle(charge, view, outcome, faults)
            if further is not None:
                charges.append(further)
        return outcome, tuple(charges), view, faults

    def spend(self, session: SessionState, tokens: int, cost: float) -> tuple[Charge, ...]:
        """What tokens and cost used between calls draw.

        They draw from budgets of all calls, not from those of some.
        """
        charges = []
        for budget in self.budgets.values():
            amount = {"tokens": tokens, "cost": cost}.get(budget.kind, 0)
            if amount and not budget.selective:
                units = round(amount * UNIT)
                charges += [Charge(budget.id, key, units) for _, key in budget.scopes(session)]
        return tuple(charges)


def _ordered(found: list[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(found, key=_strength, reverse=True))


def _strength(violation: Violation) -> int:
    return violation.effect.strength


def _halted(by: str) -> Violation:
    return Violation(
        "session/halted",
        Effect.HALT,
        "halted",
        f"the run was halted by {by}",
        "tell the person what was done and what is left to do",
    )


def _may_change(changing: Expression, view: View) -> bool:
    try:
        return changing(view) is not False
    except ExpressionError:
        return True  # what cannot be told may have changed something
