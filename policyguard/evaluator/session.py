"""What is known of one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from policyguard.evaluator.approvals import Approvals
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.bans import Bans
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.ladder import Insisted
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.refusals import Refusals
from policyguard.evaluator.view import Ground
from policyguard.evaluator.walk import Walk
from policyguard.model.event import Started
from policyguard.model.quantity import LARGEST, units

if TYPE_CHECKING:
    from policyguard.evaluator.plan import Plan

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
        "_walks",
        "accounts",
        "agent",
        "anchors",
        "approvals",
        "bans",
        "calm",
        "changes",
        "confirmed",
        "course",
        "facts",
        "flights",
        "ground",
        "halted",
        "id",
        "insisted",
        "known",
        "now",
        "overdue",
        "parent",
        "previous",
        "results",
        "scopes",
        "started_at",
        "stirring",
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
        ground: Ground,
        *,
        most: int,
        apart: bool = False,
    ) -> None:
        self.id = event.session
        self.agent = event.agent
        self.parent = parent
        self.ground = ground
        self.now = event.at
        self.started_at = event.at
        self.turn_started_at = event.at
        self.turn = 0
        self.halted = ""
        self.changes = Changes()
        self._walks: dict[Plan, Walk] = {}
        self.known: dict[Any, Walk] = {}
        self.stirring: dict[str, None] = {}
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
        self.course: Any = None
        # As sets these would be three times as large, and nearly always empty.
        self.accounts: dict[tuple[str, str], None] = {}
        self.turn_accounts: dict[tuple[str, str], None] = {}
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
            "tags": ground.tags(event.tags),
        }
        self.look()

    def clamp(self, at: int | None) -> int | None:
        """`at`, or the session's latest time where `at` lies before it."""
        if at is None or self.now is None:
            return at
        return at if at >= self.now else self.now

    def use(self, tokens: int, cost: float) -> None:
        """Tokens and money were used. What cannot be counted is more than any rule allows."""
        facts = self.facts
        facts["tokens"] += tokens if units(tokens) is not None else LARGEST
        facts["cost"] += cost if units(cost) is not None else LARGEST

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

    def walk(self, plan: Plan) -> Walk:
        """A plan with the trackers of its limits in this session or turn, new where there are none.

        At most `most` plans are remembered so; the trackers themselves are found again by id.
        """
        found = self._walks.get(plan)
        if found is None:
            if len(self._walks) >= self.bans.most:
                self._walks.clear()
                self.known.clear()
            refusals = plan.refusals
            found = self._walks[plan] = Walk(
                plan,
                tuple((limit, self.tracker(limit)) for limit in plan.limits),
                self.tracker(refusals) if refusals is not None else None,
                spawned=self.parent is not None,
            )
        return found

    def settle(self, plan: Plan) -> None:
        """Something else than an ordinary call of this plan has happened: see whether it is calm.

        What a plan's limits have counted is told by the trackers of now: the call may have begun
        in another turn.
        """
        walk, stirring = self.walk(plan), self.stirring
        for limit, tracker in walk.limits:
            if limit.stirs(tracker):
                stirring[limit.id] = None
            else:
                stirring.pop(limit.id, None)
        if plan.refusals is not None and walk.refused is not None:
            if walk.refused.count:
                stirring[plan.refusals.id] = None
            else:
                stirring.pop(plan.refusals.id, None)
        self.look()

    def look(self) -> None:
        """See whether anything stands against calls, or waits for one."""
        for insisted in self.insisted.values():
            insisted.relent(self.successes)
        self.calm = not (
            self.stirring
            or self.halted
            or self.bans.held
            or self.approvals.asked
            or self.approvals.given
            or any(insisted.attempts for insisted in self.insisted.values())
        )

    def forget_turn(self) -> None:
        """What was counted per turn is over."""
        self.turn_trackers = {}
        self._walks.clear()
        self.known.clear()
        self.stirring = {id_: None for id_ in self.stirring if id_ in self.trackers}

    def tracker(self, limit: Limit | Refusals) -> Any:
        """One limit's tracker in this session or turn."""
        trackers = self.turn_trackers if limit.per_turn else self.trackers
        tracker = trackers.get(limit.id)
        if tracker is None:
            tracker = trackers[limit.id] = limit.tracker()
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
            if owner.halted:
                return owner.halted
            owner = owner.parent
        return ""
