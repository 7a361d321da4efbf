"""`outage`: a circuit breaker for tools that fail through no fault of the agent."""

from __future__ import annotations

from collections import deque

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_times
from policyguard.model.amounts import format_duration, to_nanoseconds
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class Probe(msgspec.Struct, eq=False, frozen=True):
    """The call that a half-open breaker admits, and when (ns)."""

    admitted_at: int


class BreakerState(msgspec.Struct, eq=False):
    """The breaker of one tool. It is closed while `open_until` (ns) is None.

    `failures` are the times (ns) of consecutive harness failures. `probe` is the call that tries
    the tool after `open_until`, None while there is none.
    """

    failures: deque[int] = msgspec.field(default_factory=deque)
    open_until: int | None = None
    probe: Probe | None = None


Breakers = dict[str, BreakerState]


class OutageChecker(LimitChecker, eq=False, kw_only=True):
    """Refuses a tool for `cooldown` after `max` consecutive harness failures `within` a time.

    Then it admits one probe, and refuses others until its outcome: a harness failure opens the
    breaker again, an unknown one allows another probe, anything else closes it. A probe without a
    result is given up after `probe_timeout`. All are nanoseconds.

    Each tool of each server has a breaker; with `shared` the tools of a server under this limit
    share one. At most `max_breakers` are kept, the one that failed longest ago goes first. Calls
    without a time are neither refused nor counted.
    """

    counts_outcomes_only = True

    within: int
    cooldown: int
    shared: bool
    max_breakers: int

    def new_tracker(self) -> Breakers:
        """Return no breakers: all are closed."""
        return {}

    def subject(self, attempt: Attempt) -> str:
        """Return the tool with its server; if `shared`, the server."""
        return attempt.server if self.shared else attempt.full_name

    def evaluate(
        self, tracker: Breakers, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of a call whose breaker is open, or half-open with a probe."""
        breaker = tracker.get(self.subject(attempt)) if tracker else None
        if breaker is None or attempt.at is None:
            return None
        if breaker.open_until is None:
            return self._evaluate_closed(breaker, refused_count)
        remaining = breaker.open_until - attempt.at
        if remaining <= 0 and not self._is_probing(breaker, attempt.at):
            return None
        effect = self.escalation.effect_at(self.max + refused_count + 1, limit_reached=True)
        assert effect is not None  # noqa: S101 - at least the escalation's own effect
        tools = "these tools have" if self.shared else "this tool has"
        failed = (
            f"{tools} failed {format_times(self.max)} within {format_duration(self.within)}; "
            "you did not cause this"
        )
        return Violation(
            self.id,
            effect,
            "outage",
            failed if remaining > 0 else f"{failed}; one call is testing whether it works again",
            "do something else meanwhile, or use another tool",
            self.max,
            self.max,
            retry_after=remaining / 1e9 if remaining > 0 else None,
        )

    def _evaluate_closed(self, breaker: BreakerState, refused_count: int) -> Violation | None:
        count = len(breaker.failures)
        if not self.escalates or count >= self.max:  # as many, but too far apart
            return None
        effect = self.effect_for(count, refused_count)
        if effect is None:
            return None
        text = f"this tool has failed {format_times(count)}; you did not cause this"
        instead = "use another tool if there is one"
        return Violation(self.id, effect, "outage", text, instead, count, self.max)

    def admit(self, tracker: Breakers, attempt: Attempt) -> None:
        """Take the first call after the cooldown as the probe."""
        breaker = tracker.get(self.subject(attempt)) if tracker else None
        at = attempt.at
        if breaker is None or breaker.open_until is None or at is None:
            return
        # While it is open, calls come here where the limit does not refuse (`advise`, `observe`).
        if at < breaker.open_until or self._is_probing(breaker, at):
            return
        breaker.probe = Probe(at)
        attempt.add_limit_note(self.id, breaker.probe)

    def complete(self, tracker: Breakers, attempt: Attempt, outcome: Outcome) -> None:
        """Count a harness failure, or close the breaker; an unknown failure changes nothing."""
        is_down = outcome.blame == "harness"
        if not (tracker or is_down):
            return
        name = self.subject(attempt)
        breaker = tracker.get(name)
        if breaker is not None and breaker.open_until is not None:
            probe: Probe | None = attempt.limit_notes.get(self.id)
            if probe is None or probe is not breaker.probe:
                return  # begun before the breaker opened, or given up: it tells nothing of now
            breaker.probe = None
            if is_down:
                completed_at = attempt.completed_at
                failed_at = probe.admitted_at if completed_at is None else completed_at
                breaker.open_until = failed_at + self._open_duration(outcome)
            elif outcome.blame != "unknown":
                del tracker[name]
        elif is_down:
            if attempt.completed_at is not None:
                self._count_failure(tracker, name, attempt.completed_at, outcome)
        elif breaker is not None and outcome.blame != "unknown":
            del tracker[name]

    def release(self, tracker: Breakers, attempt: Attempt) -> None:
        """Let another call be the probe."""
        breaker = tracker.get(self.subject(attempt))
        if breaker is not None and breaker.probe is attempt.limit_notes.get(self.id):
            breaker.probe = None

    def cancel(self, tracker: Breakers, attempt: Attempt) -> None:
        """Let another call be the probe."""
        self.release(tracker, attempt)

    def _open_duration(self, outcome: Outcome) -> int:
        """Return the policy's cooldown, or longer if the tool asks for it."""
        return max(self.cooldown, to_nanoseconds(outcome.retry_after))

    def _is_probing(self, breaker: BreakerState, at: int) -> bool:
        return breaker.probe is not None and at - breaker.probe.admitted_at < self.probe_timeout

    def _count_failure(self, tracker: Breakers, name: str, at: int, outcome: Outcome) -> None:
        breaker = tracker.pop(name) if name in tracker else BreakerState()
        tracker[name] = breaker  # the latest to fail
        breaker.failures.append(at)
        if len(breaker.failures) > self.max:
            breaker.failures.popleft()
        if len(breaker.failures) == self.max and at - breaker.failures[0] < self.within:
            breaker.open_until = at + self._open_duration(outcome)
        if len(tracker) > self.max_breakers:
            del tracker[next(iter(tracker))]
