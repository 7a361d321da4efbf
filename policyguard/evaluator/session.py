"""What is known of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policyguard.evaluator.approvals import Approvals
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.bans import Bans
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.ladder import Insisted
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.refusals import Refusals, Row
from policyguard.model.event import Started

if TYPE_CHECKING:
    from policyguard.evaluator.plan import Plan

PROGRESSING = "progressing"
"""What `session.progress` is as long as nothing says otherwise."""


class Tracked:
    """A session's trackers of the limits of one plan, in the plan's order.

    `refused` is that of `refusals`, None where the plan has no such limit.
    """

    __slots__ = ("limits", "refused")

    def __init__(self, limits: tuple[tuple[Limit, Any], ...], refused: Row | None) -> None:
        self.limits = limits
        self.refused = refused


class SessionState:
    """One session's state: what its events so far amount to.

    `confirmed` is the number of the completion that last taught a learned constraint, by its id.
    `facts` is at the same time what expressions see as `session`. `trackers` belong to the
    session, `turn_trackers` to the turn; `flights` are admitted calls whose results have not come,
    `overdue` those that ran out of time and go on; `insisted` are the refused attempts by limit,
    since the turn began. At most `most` of whatever an agent can make up are remembered. Times are
    nanoseconds; they never run backwards. A session that stands `apart` shares no agent, user or
    project that its start does not name.
    """

    __slots__ = (
        "_tracked",
        "accounts",
        "agent",
        "anchors",
        "approvals",
        "bans",
        "changes",
        "confirmed",
        "facts",
        "flights",
        "halted",
        "id",
        "insisted",
        "now",
        "overdue",
        "parent",
        "previous",
        "results",
        "scopes",
        "started_at",
        "successes",
        "trackers",
        "turn",
        "turn_accounts",
        "turn_started_at",
        "turn_trackers",
    )

    def __init__(
        self,
        event: Started,
        parent: SessionState | None,
        *,
        most: int,
        apart: bool = False,
    ) -> None:
        self.id = event.session
        self.agent = event.agent
        self.parent = parent
        self.now = event.at
        self.started_at = event.at
        self.turn_started_at = event.at
        self.turn = 0
        self.halted = ""
        self.changes = Changes()
        self._tracked: dict[Plan, Tracked] = {}
        self.trackers: dict[str, Any] = {}
        self.turn_trackers: dict[str, Any] = {}
        self.flights: dict[str, Attempt] = {}
        self.overdue: dict[str, Attempt] = {}
        self.successes = 0
        self.insisted: dict[str, Insisted] = {}
        self.bans = Bans(most)
        self.approvals = Approvals(most)
        self.anchors: dict[str, list[tuple[tuple[float, ...], str]]] = {}
        self.results: dict[str, str] = {}
        self.previous: dict[str, dict[str, Any]] = {}
        self.confirmed: dict[str, int] = {}
        self.accounts: set[tuple[str, str]] = set()
        self.turn_accounts: set[tuple[str, str]] = set()
        unknown = f"\x1d{event.session}" if apart else ""
        self.scopes = {
            "agent": event.agent or unknown,
            "user": event.user or unknown,
            "project": event.project or unknown,
            "global": "",
        }
        self.facts: dict[str, Any] = {
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
            "depth": 0 if parent is None else parent.facts["depth"] + 1,
            "children": 0,
            "progress": PROGRESSING,
            "tags": dict(event.tags),
        }

    def clamp(self, at: int | None) -> int | None:
        """`at`, or the session's latest time where `at` lies before it."""
        if at is None or self.now is None:
            return at
        return at if at >= self.now else self.now

    def insists(self, limit: Limit, attempt: Attempt) -> int:
        """How many refused attempts of the same subject still stand under a limit."""
        return self.insists_on(limit.id, limit.subject(attempt))

    def insists_on(self, entry: str, subject: str) -> int:
        """The same of one subject, under any entry that has steps."""
        insisted = self.insisted.get(entry)
        return insisted.count(subject, self.successes) if insisted is not None else 0

    def insist(self, entry: str, subject: str) -> None:
        """One more attempt was refused."""
        insisted = self.insisted.get(entry)
        if insisted is None:
            insisted = self.insisted[entry] = Insisted(self.bans.most)
        insisted.add(subject, self.successes)

    def tracked(self, plan: Plan) -> Tracked:
        """The trackers of a plan's limits in this session or turn, made where there are none.

        At most `most` plans are remembered so; the trackers themselves are found again by id.
        """
        found = self._tracked.get(plan)
        if found is None:
            if len(self._tracked) >= self.bans.most:
                self._tracked.clear()
            refusals = plan.refusals
            found = self._tracked[plan] = Tracked(
                tuple((limit, self.tracker(limit)) for limit in plan.limits),
                self.tracker(refusals) if refusals is not None else None,
            )
        return found

    def forget_turn(self) -> None:
        """What was counted per turn is over."""
        self.turn_trackers = {}
        self._tracked.clear()

    def tracker(self, limit: Limit | Refusals) -> Any:
        """One limit's tracker in this session or turn."""
        trackers = self.turn_trackers if limit.per_turn else self.trackers
        tracker = trackers.get(limit.id)
        if tracker is None:
            tracker = trackers[limit.id] = limit.tracker()
        return tracker

    def halted_by(self) -> str:
        """The entry that halted this session or an ancestor; empty where none did."""
        owner: SessionState | None = self
        while owner is not None:
            if owner.halted:
                return owner.halted
            owner = owner.parent
        return ""
