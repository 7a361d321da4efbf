"""`outage`: a tool that keeps failing by no fault of the agent is given a rest, then one trial."""

from __future__ import annotations

from collections import deque

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker, LimitSettings
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_duration, format_times
from policyguard.model.amounts import to_nanoseconds
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Probe:
    """The one call that finds out whether the tool is back; admitted `at` (ns)."""

    __slots__ = ("admitted_at",)

    def __init__(self, admitted_at: int) -> None:
        self.admitted_at = admitted_at


class BreakerState:
    """The harness failures of one tool in a row (their times, ns), or its rest.

    `until` is when the rest is over (ns), None while the tool is in use. `trial` is the call that
    tries it then, None while none does.
    """

    __slots__ = ("failures", "open_until", "probe")

    def __init__(self) -> None:
        self.failures: deque[int] = deque()
        self.open_until: int | None = None
        self.probe: Probe | None = None


class OutageChecker(LimitChecker):
    """Refuses a tool for `cooldown` after `max` harness failures in a row `within` a time.

    Then one call is let through, and others wait for its outcome: a harness failure means another
    rest, an unknown one another trial, anything else that the tool is back. A trial that nobody
    reports is given up after `patience`. All are nanoseconds.

    Each tool (of each server) has a row of its own; with `together` the tools under this limit
    share one (with those of their server). At most `most` rows are remembered, the one that failed
    longest ago is forgotten first. Calls without a time are neither judged nor counted.
    """

    __slots__ = ("cooldown", "max_breakers", "probe_timeout", "shared", "within")

    def __init__(
        self,
        settings: LimitSettings,
        *,
        max: int,  # noqa: A002 - the field's name in the language
        within: int,
        cooldown: int,
        shared: bool,
        max_breakers: int,
        probe_timeout: int,
    ) -> None:
        super().__init__(settings, max, always_evaluated=False)
        self.within = within
        self.cooldown = cooldown
        self.shared = shared
        self.max_breakers = max_breakers
        self.probe_timeout = probe_timeout

    def new_tracker(self) -> dict[str, BreakerState]:
        """No tool has failed."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """The tool, on its server; with `together`, all of that server."""
        return attempt.server if self.shared else attempt.full_name

    def evaluate(
        self,
        tracker: dict[str, BreakerState],
        attempt: Attempt,
        changes: StateChanges,
        refused_count: int,
    ) -> Violation | None:
        """Whether the tool rests, or is being tried."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        if row is None or attempt.at is None:
            return None
        if row.open_until is None:
            return self._evaluate_closed(row, refused_count)
        left = row.open_until - attempt.at
        if left <= 0 and not self._is_probing(row, attempt.at):
            return None
        effect = self.escalation.effect_at(self.max + refused_count + 1, limit_reached=True)
        assert effect is not None  # noqa: S101 - over: the ladder's own effect at least
        who = "these tools have" if self.shared else "this tool has"
        failed = f"{who} failed {format_times(self.max)} within {format_duration(self.within)}, not by your fault"
        return Violation(
            self.id,
            effect,
            "outage",
            failed if left > 0 else f"{failed}; one call is trying whether that is over",
            "do something else meanwhile, or take another tool",
            self.max,
            self.max,
            retry_after=left / 1e9 if left > 0 else None,
        )

    def _evaluate_closed(self, row: BreakerState, refused_count: int) -> Violation | None:
        """What the steps say while the tool is still in use."""
        count = len(row.failures)
        if not self.escalates or count >= self.max:  # as many, but too far apart
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        text = f"this tool has failed {format_times(count)}, not by your fault"
        instead = "take another tool if there is one"
        return Violation(self.id, effect, "outage", text, instead, count, self.max)

    def admit(self, tracker: dict[str, BreakerState], attempt: Attempt) -> None:
        """The first call after a rest is the trial."""
        row = tracker.get(self.subject(attempt)) if tracker else None
        at = attempt.at
        if row is None or row.open_until is None or at is None:
            return
        # During the rest, calls get here where this limit does not refuse (`advise`, `observe`).
        if at < row.open_until or self._is_probing(row, at):
            return
        row.probe = Probe(at)
        attempt.add_limit_note(self.id, row.probe)

    def complete(
        self, tracker: dict[str, BreakerState], attempt: Attempt, outcome: Outcome
    ) -> None:
        """A harness failure lengthens the row or the rest; an unknown one changes nothing."""
        down = outcome.blame == "harness"
        if not (tracker or down):
            return
        name = self.subject(attempt)
        row = tracker.get(name)
        if row is not None and row.open_until is not None:
            mark: Probe | None = attempt.limit_notes.get(self.id)
            if mark is None or mark is not row.probe:
                return  # begun before the rest (or given up): it says nothing of the tool as it is
            row.probe = None
            if down:
                ended = mark.admitted_at if attempt.completed_at is None else attempt.completed_at
                row.open_until = ended + self._open_duration(outcome)
            elif outcome.blame != "unknown":
                del tracker[name]
        elif down:
            if attempt.completed_at is not None:
                self._count_failure(tracker, name, attempt.completed_at, outcome)
        elif row is not None and outcome.blame != "unknown":
            del tracker[name]

    def release(self, tracker: dict[str, BreakerState], attempt: Attempt) -> None:
        """A trial that did not run leaves its place to another call."""
        row = tracker.get(self.subject(attempt))
        if row is not None and row.probe is attempt.limit_notes.get(self.id):
            row.probe = None

    def _open_duration(self, outcome: Outcome) -> int:
        """How long the tool rests: as the policy says, or longer where the tool asks for it."""
        return max(self.cooldown, to_nanoseconds(outcome.retry_after))

    def _is_probing(self, row: BreakerState, at: int) -> bool:
        return row.probe is not None and at - row.probe.admitted_at < self.probe_timeout

    def _count_failure(
        self, tracker: dict[str, BreakerState], name: str, at: int, outcome: Outcome
    ) -> None:
        row = tracker.pop(name) if name in tracker else BreakerState()
        tracker[name] = row  # the latest to fail
        row.failures.append(at)
        if len(row.failures) > self.max:
            row.failures.popleft()
        if len(row.failures) == self.max and at - row.failures[0] < self.within:
            row.open_until = at + self._open_duration(outcome)
        if len(tracker) > self.max_breakers:
            del tracker[next(iter(tracker))]
