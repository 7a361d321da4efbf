"""The way of a call: classify, then ask limits, budgets and rules, and take the strongest answer.

Everything here is a pure function of the policy, the state and the call: no clock, no I/O. State
changes only in `fold`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from policyguard.evaluator.account import UNIT
from policyguard.evaluator.attempt import Attempt
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


class Verdict(NamedTuple):
    """What the policy says to an attempt. `would` comes from entries in observe mode."""

    effect: Effect
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    faults: tuple[Fault, ...]


class Evaluator:
    """A compiled policy.

    `candidates` and `plan` look up what applies to a tool (and server, agent, class); `identify`
    gives a call's identity or raises `ArgumentsError`; `close` tells whether tolerant numbers are
    close to an earlier call's; `derive` computes what expressions read of
    a call beyond its plain fields; `instant` and `span` turn nanoseconds into what expressions see
    as times.
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
        changing = plan.changing
        attempt.changing = changing if isinstance(changing, bool) else _may_change(changing, view)
        for limit in plan.keyed:
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
    ) -> Verdict:
        """Collect every violation; the strongest effect wins, whatever the order.

        `learned` is what constraints have against the call.
        With `observe` nothing is refused: what would have been stands in `would`.
        """
        faults = attempt.faults
        found = learned
        would: list[Violation] = []
        halted = session.halted_by()
        if halted:
            found.append(_halted(halted))
        for limit in plan.limits:
            violation = limit.judge(session.tracker(limit), attempt, session.changes)
            if violation is not None:
                (would if limit.observe else found).append(violation)
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
        if found and attempt.fingerprint in session.approvals:
            found = [violation for violation in found if violation.effect is not Effect.ASK]
        return _combine(found, would, faults, observe=observe)

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


def _combine(
    found: list[Violation], would: list[Violation], faults: list[Fault], *, observe: bool
) -> Verdict:
    if observe:
        would, found = found + would, []
    if not found:
        return Verdict(Effect.ALLOW, (), tuple(would), tuple(faults))
    found.sort(key=_strength, reverse=True)
    return Verdict(found[0].effect, tuple(found), tuple(would), tuple(faults))


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
