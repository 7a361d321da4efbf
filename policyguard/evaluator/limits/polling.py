"""`polling`: calls that are meant to be repeated until their result changes."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.recent_results import find_recent_results
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.evaluator.messages import format_times
from policyguard.model.amounts import format_duration, to_nanoseconds
from policyguard.model.decision import Violation
from policyguard.model.outcome import Outcome


class PollState(msgspec.Struct, eq=False):
    """One polled call: when it was last admitted, and how often its result stayed the same.

    `wait` is how long its last result asks to wait (ns), `seq` numbers its completion. `in_flight`
    polls have no result; they count as unchanged, since a host may never report them, or cancel
    each.
    """

    admitted_at: int | None = None
    result_fingerprint: str | None = None
    unchanged: int = 0
    seq: int = 0
    wait: int = 0
    in_flight: int = 0


Polls = dict[str, PollState]


class PollingChecker(LimitChecker, eq=False, kw_only=True):
    """Requires `cooldown` nanoseconds between polls, and a new result after `unchanged` equal ones.

    A state change by another call restarts the count: it may be what is waited for. So does a new
    result of another call: who waits between such is not stuck. A result's own `retry_after`
    replaces a shorter cooldown. Escalation counts polls with one result, the first
    included. At most `max_polls` are kept, the least recently used goes first.
    """

    needs_admissions = True

    cooldown: int | None
    unchanged: int | None
    max_polls: int

    def new_tracker(self) -> Polls:
        """Return no polls."""
        return {}

    def watched(self, tracker: Polls) -> Container[str] | None:
        """Return the polls."""
        return tracker

    def evaluate(
        self, tracker: Polls, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the violation of a poll that is too early, or unchanged too often."""
        poll = tracker.get(attempt.likeness)
        if poll is None:
            return None
        same = poll.in_flight + (0 if poll.result_fingerprint is None else poll.unchanged + 1)
        if _last_event_except(attempt) > poll.seq:
            same = refused_count = 0
        is_unchanged = same > self.max
        remaining = self._time_left(poll, attempt)
        effect = self.escalation.effect_at(
            same + refused_count + 1, limit_reached=is_unchanged or remaining > 0
        )
        if effect is None:
            return None
        if remaining > 0 and not is_unchanged:
            wait = format_duration(max(self.cooldown or 0, poll.wait))
            return Violation(
                f"{self.id}/cooldown",
                effect,
                "polling",
                f"you polled this less than {wait} ago",
                "wait, or do something else meanwhile",
                retry_after=remaining / 1e9,
            )
        return Violation(
            f"{self.id}/unchanged",
            effect,
            "polling",
            f"this poll's result has stayed the same {format_times(max(same - 1, 0))}",
            "stop polling: check what it waits for, or finish with what you have",
            max(same - 1, 0),
            self.unchanged,
        )

    def _time_left(self, poll: PollState, attempt: Attempt) -> int:
        """Return the nanoseconds until the poll may be made again."""
        wait = max(self.cooldown or 0, poll.wait)
        if not wait or attempt.at is None or poll.admitted_at is None:
            return 0
        return poll.admitted_at + wait - attempt.at

    def admit(self, tracker: Polls, attempt: Attempt) -> None:
        """Note when the poll was made."""
        poll = tracker.pop(attempt.likeness, None)
        if poll is None:
            poll = PollState()
            if len(tracker) >= self.max_polls:
                del tracker[next(iter(tracker))]
        elif _last_event_except(attempt) > poll.seq:
            poll.result_fingerprint = None
            poll.unchanged = poll.in_flight = 0
            poll.seq = attempt.session.state_changes.seq
        tracker[attempt.likeness] = poll
        poll.admitted_at = attempt.at
        poll.in_flight += 1
        attempt.add_limit_note(self.id, poll)

    def complete(self, tracker: Polls, attempt: Attempt, outcome: Outcome) -> None:
        """Count a result that is the same as before."""
        poll: PollState = attempt.limit_notes[self.id]
        is_same = outcome.result_fingerprint == poll.result_fingerprint
        if is_same or poll.result_fingerprint is None:
            poll.in_flight = max(0, poll.in_flight - 1)
        else:
            poll.in_flight = 0  # one that is never reported must not count for ever
        poll.unchanged = poll.unchanged + 1 if is_same else 0
        poll.result_fingerprint = outcome.result_fingerprint
        poll.seq = attempt.window_entry.seq
        poll.wait = to_nanoseconds(outcome.retry_after)
        attempt.session.state_changes.record_wait(attempt.completed_at)

    def release(self, tracker: Polls, attempt: Attempt) -> None:
        """Allow the poll at once."""
        poll: PollState = attempt.limit_notes[self.id]
        poll.admitted_at = None
        poll.in_flight = max(0, poll.in_flight - 1)


def _last_event_except(attempt: Attempt) -> int:
    """Return the number of the last change by another call, or of the last news by one."""
    session = attempt.session
    changed = session.state_changes.last_change_except(attempt.likeness)
    for recent in find_recent_results(session):  # polls are not among them
        changed = max(changed, recent.latest_news())
    return changed


UNBOUNDED = 1 << 62
"""Stands for `unchanged` in a policy that does not bound it."""
