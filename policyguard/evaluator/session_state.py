"""The state of one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.evaluator.activation import ActivationContext
from policyguard.evaluator.approvals import Approvals
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.batches import RefusedBatches
from policyguard.evaluator.limits.bans import Bans
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.escalation import RefusedAttempts
from policyguard.evaluator.limits.refusals import RefusalsChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.marks.mark_states import MarkStates
from policyguard.evaluator.marks.mark_tables import UNNAMED
from policyguard.evaluator.offered_tools import OfferedTools
from policyguard.evaluator.plan import BoundPlan, Plan
from policyguard.evaluator.tolerant_calls import TolerantCalls
from policyguard.model.amounts import MAX_AMOUNT, to_units
from policyguard.model.event import SessionStarted

PROGRESSING = "progressing"
"""The initial value of `session.progress`."""


class SessionState:
    """What a session's events so far amount to.

    `cel_session` holds its counters, which expressions see as `session`. `trackers` hold what
    limits count in the session, `turn_trackers` in the turn. `in_flight` are admitted calls without
    a result, `timed_out` those whose time is over and that still run, `given_up` those that were
    taken for unreported, and `reduced` older ones without their arguments: a late result finds them
    there, unless there were too many (`has_forgotten_calls`). It `has_repeated` if a call was made
    again, so that what others echo matters. `refused_attempts` count the turn's
    refusals, by limit. `active_limits` are those that may refuse a call for what others returned,
    `open_streaks` those that count a success until then, each with whether it counts per turn.
    `usage_keys` and `turn_usage_keys` are the budgets and keys that end with the session and turn,
    `batch_usage_keys` those of the turn's batches, and `refused_batches` the batches of the turn
    that have a refused call, if that matters. `marks` are those of all sessions (None: the policy
    has none), `mark_scopes` where to find this one's.
    `confirmed_constraints` has, by constraint, the completion that last taught it;
    `search_progress` is the learning side's own. `counted_children` are sub-agents that are closed:
    what they did counts here already, so one that is rebuilt has `trackers_aside`, not those of the
    tree, until it is open again.

    A session is `on_fast_path` while nothing refused, banned, halted or approved can concern its
    calls, which is nearly always. `plans_by_tool` holds the plans of tools whose calls are all of
    one class. An `isolated` session shares no agent, user or project that its start does not name.
    At most `max_entries` of anything an agent can invent are kept. Times are nanoseconds and never
    run backwards.
    """

    __slots__ = (
        "_bound_plans",
        "activation_context",
        "active_limits",
        "agent",
        "approvals",
        "bans",
        "batch_usage_keys",
        "cel_session",
        "confirmed_constraints",
        "counted_children",
        "given_up",
        "halt_entry",
        "has_forgotten_calls",
        "has_repeated",
        "id",
        "in_flight",
        "last_results",
        "mark_scopes",
        "marks",
        "now",
        "offered",
        "on_fast_path",
        "open_streaks",
        "parent",
        "plans_by_tool",
        "previous_args",
        "reduced",
        "refused_attempts",
        "refused_batches",
        "scope_keys",
        "search_progress",
        "started_at",
        "state_changes",
        "successes",
        "timed_out",
        "tolerant_calls",
        "trackers",
        "trackers_aside",
        "turn",
        "turn_started_at",
        "turn_trackers",
        "turn_usage_keys",
        "usage_keys",
    )

    def __init__(
        self,
        event: SessionStarted,
        parent: SessionState | None,
        activation_context: ActivationContext,
        *,
        max_entries: int,
        isolated: bool = False,
        marks: MarkStates | None = None,
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
        self.offered: OfferedTools | None = None
        self.active_limits: dict[str, bool] = {}
        self.open_streaks: dict[str, bool] = {}
        self.trackers: dict[str, Any] = {}
        self.turn_trackers: dict[str, Any] = {}
        self.trackers_aside: dict[str, Any] | None = None
        self.counted_children: dict[str, None] = {}
        self.in_flight: dict[str, Attempt] = {}
        self.timed_out: dict[str, Attempt] = {}
        self.given_up: dict[str, Attempt] = {}
        self.reduced: dict[str, Attempt] = {}
        self.has_forgotten_calls = False
        self.has_repeated = False
        self.successes = 0
        self.refused_attempts: dict[str, RefusedAttempts] = {}
        self.bans = Bans(max_entries)
        self.refused_batches = RefusedBatches(max_entries)
        self.approvals = Approvals(max_entries)
        self.tolerant_calls = TolerantCalls()
        self.last_results: dict[str, str] = {}
        self.previous_args: dict[str, dict[str, Any]] = {}
        self.confirmed_constraints: dict[str, int] = {}
        self.search_progress: Any = None
        # As sets these would be three times as large, and they are nearly always empty.
        self.usage_keys: dict[tuple[str, str], None] = {}
        self.turn_usage_keys: dict[tuple[str, str], None] = {}
        self.batch_usage_keys: dict[tuple[str, str], None] = {}
        unnamed = f"{UNNAMED}{event.session}" if isolated else ""
        self.scope_keys = {
            "agent": event.agent or unnamed,
            "user": event.user or unnamed,
            "project": event.project or unnamed,
            "global": "",
        }
        self.marks = marks
        self.mark_scopes: dict[str, str] = {}
        if marks is not None:
            run = event.session if parent is None else parent.mark_scopes["session"]
            self.mark_scopes = {**self.scope_keys, "session": run, "turn": run}
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
        """Return `at`, or the session's latest time if that is later."""
        if at is None or self.now is None:
            return at
        return at if at >= self.now else self.now

    def find_unreported(self, call: str) -> Attempt | None:
        """Return an admitted call without a result, in flight or given up; None if unknown."""
        attempt = self.in_flight.get(call)
        if attempt is None and (self.given_up or self.reduced):
            return self.given_up.get(call) or self.reduced.get(call)
        return attempt

    def remove_given_up(self, attempt: Attempt) -> None:
        """Note that a given-up call has its result."""
        del (self.reduced if attempt.is_reduced else self.given_up)[attempt.id]

    def add_usage(self, tokens: int, cost: float) -> None:
        """Count tokens and cost. An invalid amount counts as more than any rule allows."""
        variables = self.cel_session
        variables["tokens"] += tokens if to_units(tokens) is not None else MAX_AMOUNT
        variables["cost"] += cost if to_units(cost) is not None else MAX_AMOUNT

    def count_refusals(self, limit: LimitChecker, attempt: Attempt) -> int:
        """Return how many refused attempts with the attempt's subject stand under a limit."""
        return self.count_refusals_of(limit.id, limit.subject(attempt))

    def count_refusals_of(self, entry: str, subject: str) -> int:
        """Return how many refused attempts of a subject stand under an entry."""
        refused = self.refused_attempts.get(entry)
        return refused.count(subject, self.successes) if refused is not None else 0

    def add_refusal(self, entry: str, subject: str) -> None:
        """Count one more refused attempt."""
        refused = self.refused_attempts.get(entry)
        if refused is None:
            refused = self.refused_attempts[entry] = RefusedAttempts(self.bans.max_bans)
        refused.add(subject, self.successes)

    def clear_refusals(self, attempt: Attempt, *, has_succeeded: bool = False) -> None:
        """Forget refusals of an admitted call; of a probe, once it has succeeded."""
        plan, streak = attempt.bound_plan.plan, attempt.bound_plan.refusal_streak
        probed: list[LimitChecker] = []
        if attempt.limit_notes:
            probed = [limit for limit in plan.limits if limit.is_probe(attempt)]
        if has_succeeded:
            if not probed:
                return
            probed = []
        if self.refused_attempts:
            for limit in plan.escalating_limits:
                if limit.id in self.refused_attempts and limit not in probed:
                    self.refused_attempts[limit.id].clear(limit.subject(attempt))
        if streak is not None and not probed:
            streak.reset()

    def bind_plan(self, plan: Plan) -> BoundPlan:
        """Return a plan bound to the session's trackers. At most `max_entries` are kept."""
        bound = self._bound_plans.get(plan)
        if bound is None:
            if len(self._bound_plans) >= self.bans.max_bans:
                self._bound_plans.clear()
                self.plans_by_tool.clear()
            refusals = plan.refusals
            last = next(reversed(self._bound_plans.values()), None)
            bound = self._bound_plans[plan] = BoundPlan(
                plan,
                last.limits  # most tools share theirs
                if last is not None and last.plan.limits == plan.limits
                else tuple((limit, self.get_tracker(limit)) for limit in plan.limits),
                self.get_tracker(refusals) if refusals is not None else None,
                has_parent=self.parent is not None,
            )
        return bound

    def update_active_limits(self, plan: Plan) -> None:
        """Update which of a plan's limits are active, by the trackers of the current turn."""
        bound, active, streaks = self.bind_plan(plan), self.active_limits, self.open_streaks
        for limit, tracker in bound.may_be_active:
            id_ = limit.id
            is_active = has_streak = False
            if tracker:
                is_active = limit.is_active(tracker)
                has_streak = limit.counts_streaks and not is_active
            if is_active:
                active[id_] = limit.per_turn
            elif id_ in active:
                del active[id_]
            if has_streak:
                streaks[id_] = limit.per_turn
            elif id_ in streaks:
                del streaks[id_]
        self.update_refusals(bound)

    def update_refusals(self, bound: BoundPlan) -> None:
        """Update whether `refusals` is active, the only limit that an admission may end."""
        refusals, streak = bound.plan.refusals, bound.refusal_streak
        if refusals is not None and streak is not None:
            if streak.count:
                self.active_limits[refusals.id] = refusals.per_turn
            else:
                self.active_limits.pop(refusals.id, None)
        self.refresh_fast_path()

    def refresh_fast_path(self) -> None:
        """Update `on_fast_path`."""
        for refused in self.refused_attempts.values():
            refused.drop_offset(self.successes)
        self.on_fast_path = not (
            self.active_limits
            or self.halt_entry
            or self.bans.active
            or self.refused_batches
            or self.approvals.requests
            or self.approvals.received
            or any(refused.attempts for refused in self.refused_attempts.values())
        )

    def offer(self, tools: tuple[str, ...]) -> None:
        """Note which tools the agent is offered from now on."""
        self.offered = OfferedTools(tools)
        self.plans_by_tool.clear()

    def reset_turn(self) -> None:
        """Forget what was counted per turn."""
        self.turn_trackers = {}
        self._bound_plans.clear()
        self.plans_by_tool.clear()
        for limits in (self.active_limits, self.open_streaks):
            for id_ in [id_ for id_, per_turn in limits.items() if per_turn]:
                del limits[id_]

    def get_tracker(self, limit: LimitChecker | RefusalsChecker) -> Any:
        """Return a limit's tracker in this session, turn or tree, new where there is none."""
        trackers = self.turn_trackers if limit.per_turn else self.trackers
        if limit.counts_tree and self.parent is not None:
            if self.trackers_aside is None:
                return self.parent.get_tracker(limit)
            trackers = self.trackers_aside
        id_ = limit.tracker_id
        tracker = trackers.get(id_)
        if tracker is None:
            tracker = trackers[id_] = limit.new_tracker()
        elif id_ != limit.id:
            limit.share(tracker)
        return tracker

    def note_counted(self, child: str) -> None:
        """Note that what a sub-agent has done counts here; while it is rebuilt, it must not again.

        That is known of `max_entries` sub-agents.
        """
        if len(self.counted_children) >= self.bans.max_bans:
            del self.counted_children[next(iter(self.counted_children))]
        self.counted_children[child] = None

    def count_aside(self) -> None:
        """Leave the ancestors alone until `join_tree`: they do not, or no more, count this."""
        if self.parent is not None:
            self.trackers_aside = {}

    def join_tree(self) -> None:
        """Count for the ancestors from now on, after a rebuild that they have nothing of."""
        if self.trackers_aside is None or self.parent is None:
            return
        self.parent.counted_children.pop(self.id, None)
        self.trackers_aside = None
        for bound in self._bound_plans.values():
            for limit in bound.plan.limits:
                if limit.counts_tree:
                    self.active_limits.pop(limit.id, None)
                    self.open_streaks.pop(limit.id, None)
        self._bound_plans.clear()
        self.plans_by_tool.clear()
        for attempts in (self.in_flight, self.timed_out, self.given_up, self.reduced):
            for attempt in attempts.values():
                attempt.bound_plan = self._rebind(attempt.bound_plan)

    def _rebind(self, bound: BoundPlan) -> BoundPlan:
        """Bind a plan to the trackers of the tree; its others may be of an earlier turn."""
        refusals = bound.plan.refusals
        streak = bound.refusal_streak
        if refusals is not None and refusals.counts_tree:
            streak = self.get_tracker(refusals)
        limits = tuple(
            (limit, self.get_tracker(limit) if limit.counts_tree else tracker)
            for limit, tracker in bound.limits
        )
        return BoundPlan(bound.plan, limits, streak, has_parent=True)

    def ancestors(self) -> Iterator[SessionState]:
        """Yield the parent, its parent, and so on."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    def halted_by(self) -> str:
        """Return the entry that halted this session or an ancestor; empty for none."""
        session: SessionState | None = self
        while session is not None:
            if session.halt_entry:
                return session.halt_entry
            session = session.parent
        return ""
