"""What is known of one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.evaluator.activation import ActivationContext
from policyguard.evaluator.approvals import Approvals
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.bans import Bans
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.escalation import RefusedAttempts
from policyguard.evaluator.limits.refusals import RefusalsChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.plan import BoundPlan, Plan
from policyguard.model.amounts import MAX_AMOUNT, to_units
from policyguard.model.event import Started


PROGRESSING = "progressing"
"""What `session.progress` is as long as nothing says otherwise."""


class SessionState:
    """One session's state: what its events so far amount to.

    `confirmed` is the number of the completion that last taught a learned constraint, by its id.
    `facts` is at the same time what expressions see as `session`. `trackers` belong to the
    session, `turn_trackers` to the turn; `flights` are admitted calls whose results have not come,
    `overdue` those that ran out of time and go on; `insisted` are the refused attempts by limit,
    since the turn began. While a session is `calm`, nothing stands against its calls, and nothing
    waits for one, but what limits on repetition remember of each: nearly always. `known` are the
    walks of tools whose calls are all of one class, `stirring` the limits that have heard of more
    than successes, `course` is what learning makes of the session.
    At most `most` of whatever an agent can make up are remembered. Times are
    nanoseconds; they never run backwards. A session that stands `apart` shares no agent, user or
    project that its start does not name.
    """

    __slots__ = (
        "_bound_plans",
        "activation_context",
        "active_limits",
        "agent",
        "approvals",
        "bans",
        "cel_session",
        "confirmed_constraints",
        "halt_entry",
        "id",
        "in_flight",
        "last_results",
        "now",
        "on_fast_path",
        "parent",
        "plans_by_tool",
        "previous_args",
        "refused_attempts",
        "scope_keys",
        "search_progress",
        "started_at",
        "state_changes",
        "successes",
        "timed_out",
        "tolerant_calls",
        "trackers",
        "turn",
        "turn_started_at",
        "turn_trackers",
        "turn_usage_keys",
        "usage_keys",
    )

    def __init__(
        self,
        event: Started,
        parent: SessionState | None,
        activation_context: ActivationContext,
        *,
        max_entries: int,
        isolated: bool = False,
    ) -> None:
        self.id = event.session
        self.agent = event.agent
        self.parent = parent
        self.activation_context = activation_context
        self.now = event.at
        self.started_at = event.at
        self.turn_started_at = event.at
        self.turn = 0
        self.halt_entry = ""
        self.state_changes = StateChanges()
        self._bound_plans: dict[Plan, BoundPlan] = {}
        self.plans_by_tool: dict[Any, BoundPlan] = {}
        self.active_limits: dict[str, None] = {}
        self.trackers: dict[str, Any] = {}
        self.turn_trackers: dict[str, Any] = {}
        self.in_flight: dict[str, Attempt] = {}
        self.timed_out: dict[str, Attempt] = {}
        self.successes = 0
        self.refused_attempts: dict[str, RefusedAttempts] = {}
        self.bans = Bans(max_entries)
        self.approvals = Approvals(max_entries)
        self.tolerant_calls: dict[str, list[tuple[tuple[float, ...], str]]] = {}
        self.last_results: dict[str, str] = {}
        self.previous_args: dict[str, dict[str, Any]] = {}
        self.confirmed_constraints: dict[str, int] = {}
        self.search_progress: Any = None
        # As sets these would be three times as large, and nearly always empty.
        self.usage_keys: dict[tuple[str, str], None] = {}
        self.turn_usage_keys: dict[tuple[str, str], None] = {}
        unknown = f"\x1d{event.session}" if isolated else ""
        self.scope_keys = {
            "agent": event.agent or unknown,
            "user": event.user or unknown,
            "project": event.project or unknown,
            "global": "",
        }
        self.cel_session: dict[str, Any] = {
            "id": event.session,
            "user": event.user,
            "agent": event.agent,
            "cwd": event.cwd,
            "roles": list(event.roles),
            "turn": 0,
            "calls": 0,
            "failures": 0,
            "tokens": 0,
            "cost": 0.0,
            "running": 0,
            "depth": 0 if parent is None else parent.cel_session["depth"] + 1,
            "children": 0,
            "progress": PROGRESSING,
            "tags": activation_context.convert_tags(event.tags),
        }
        self.refresh_fast_path()

    def clamp_time(self, at: int | None) -> int | None:
        """`at`, or the session's latest time where `at` lies before it."""
        if at is None or self.now is None:
            return at
        return at if at >= self.now else self.now

    def add_usage(self, tokens: int, cost: float) -> None:
        """Tokens and money were used. What cannot be counted is more than any rule allows."""
        facts = self.cel_session
        facts["tokens"] += tokens if to_units(tokens) is not None else MAX_AMOUNT
        facts["cost"] += cost if to_units(cost) is not None else MAX_AMOUNT

    def count_refusals(self, limit: LimitChecker, attempt: Attempt) -> int:
        """How many refused attempts of the same subject still stand under a limit."""
        return self.count_refusals_of(limit.id, limit.subject(attempt))

    def count_refusals_of(self, entry: str, subject: str) -> int:
        """The same of one subject, under any entry that has steps."""
        insisted = self.refused_attempts.get(entry)
        return insisted.count(subject, self.successes) if insisted is not None else 0

    def add_refusal(self, entry: str, subject: str) -> None:
        """One more attempt was refused."""
        insisted = self.refused_attempts.get(entry)
        if insisted is None:
            insisted = self.refused_attempts[entry] = RefusedAttempts(self.bans.max_bans)
        insisted.add(subject, self.successes)

    def bind_plan(self, plan: Plan) -> BoundPlan:
        """A plan with the trackers of its limits in this session or turn, new where there are none.

        At most `most` plans are remembered so; the trackers themselves are found again by id.
        """
        found = self._bound_plans.get(plan)
        if found is None:
            if len(self._bound_plans) >= self.bans.max_bans:
                self._bound_plans.clear()
                self.plans_by_tool.clear()
            refusals = plan.refusals
            found = self._bound_plans[plan] = BoundPlan(
                plan,
                tuple((limit, self.get_tracker(limit)) for limit in plan.limits),
                self.get_tracker(refusals) if refusals is not None else None,
                has_parent=self.parent is not None,
            )
        return found

    def update_active_limits(self, plan: Plan) -> None:
        """Something else than an ordinary call of this plan has happened: see whether it is calm.

        What a plan's limits have counted is told by the trackers of now: the call may have begun
        in another turn.
        """
        walk, stirring = self.bind_plan(plan), self.active_limits
        for limit, tracker in walk.limits:
            if limit.is_active(tracker):
                stirring[limit.id] = None
            else:
                stirring.pop(limit.id, None)
        if plan.refusals is not None and walk.refusal_streak is not None:
            if walk.refusal_streak.count:
                stirring[plan.refusals.id] = None
            else:
                stirring.pop(plan.refusals.id, None)
        self.refresh_fast_path()

    def refresh_fast_path(self) -> None:
        """See whether anything stands against calls, or waits for one."""
        for insisted in self.refused_attempts.values():
            insisted.drop_offset(self.successes)
        self.on_fast_path = not (
            self.active_limits
            or self.halt_entry
            or self.bans.active
            or self.approvals.requests
            or self.approvals.received
            or any(insisted.attempts for insisted in self.refused_attempts.values())
        )

    def reset_turn(self) -> None:
        """What was counted per turn is over."""
        self.turn_trackers = {}
        self._bound_plans.clear()
        self.plans_by_tool.clear()
        self.active_limits = {id_: None for id_ in self.active_limits if id_ in self.trackers}

    def get_tracker(self, limit: LimitChecker | RefusalsChecker) -> Any:
        """One limit's tracker in this session or turn."""
        trackers = self.turn_trackers if limit.per_turn else self.trackers
        tracker = trackers.get(limit.id)
        if tracker is None:
            tracker = trackers[limit.id] = limit.new_tracker()
        return tracker

    def ancestors(self) -> Iterator[SessionState]:
        """Its parent, and whose sub-agent that is, upwards."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def halted_by(self) -> str:
        """The entry that halted this session or an ancestor; empty where none did."""
        owner: SessionState | None = self
        while owner is not None:
            if owner.halt_entry:
                return owner.halt_entry
            owner = owner.parent
        return ""
