"""The common base of the kinds of limits.

A limit is a value of the policy without state; its *tracker* holds what one session or turn has
counted for it, made when a call first comes under the limit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container
from typing import Any

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class LimitSettings(msgspec.Struct, eq=False, kw_only=True):
    """What every kind of limit is given.

    `counts_tree`: the calls of sub-agents count for the session at the root, and its for them.
    `refuse_tool`: once reached, the limit bans the tool instead of the call. `until` is how long
    (progress, success, turn, session; empty for what the kind itself does). A probe without a
    result is given up after `probe_timeout` (ns).
    """

    id: str
    max: int
    escalation: Escalation
    per_turn: bool
    observe: bool
    counts_tree: bool = False
    refuse_tool: bool = False
    until: str = ""
    probe_timeout: int = 0

    @property
    def tracker_id(self) -> str:
        """The name of its tracker in a session or turn."""
        return self.id

    def share(self, tracker: Any) -> None:
        """Use a tracker that another limit made."""


class LimitChecker(LimitSettings, eq=False, kw_only=True):
    """A limit: repeat, cycle, no_progress, failures, outage or polling.

    Below `min_count` it finds no violation, unless attempts were refused. Unless it is
    `always_evaluated`, its tracker stays empty, and it is not asked, until an outcome gives it
    something to count. A limit that `may_be_active` has every call evaluated while it is. With
    `needs_admissions` it counts admissions, with `needs_successes` every success. One with
    `rows_by_call` counts each call apart: only that call concerns its row, and a change of state.
    `judges_arguments`: a call with other arguments may fare better, so a ban `until: success` tries
    one. With `counts_calls` a `max` of 0 refuses every call. One that `counts_streaks` counts a
    success, too, while its tracker holds any.
    """

    needs_admissions = False
    reads_recent_results = False
    counts_outcomes_only = False
    judges_arguments = True
    counts_calls = False
    counts_streaks = False

    always_evaluated: bool = True
    needs_successes: bool = True
    escalates: bool = False
    sets_bans: bool = False
    may_be_active: bool = True
    rows_by_call: bool = False
    min_count: int = 0

    def __post_init__(self) -> None:
        self.always_evaluated = not (self.counts_outcomes_only and self.max)
        self.needs_successes = self.always_evaluated
        self.escalates = bool(self.escalation.thresholds)
        self.sets_bans = self.refuse_tool or bool(self.until)
        self.may_be_active = not self.always_evaluated
        lowest = self.escalation.lowest_threshold
        self.min_count = self.max if lowest is None else min(self.max, lowest - 1)

    @property
    def is_ban(self) -> bool:
        """Whether it refuses every call of the tools that it is about."""
        blocks = self.escalation.effect >= Effect.BLOCK and not self.observe
        return self.counts_calls and not self.max and blocks

    @abstractmethod
    def new_tracker(self) -> Any:
        """Return an empty tracker for a session or turn."""

    @abstractmethod
    def evaluate(
        self, tracker: Any, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """Return the attempt's violation, if any. Changes nothing.

        `refused_count` is how many refused attempts of the same subject stand.
        """

    def watched(self, tracker: Any) -> Container[str] | None:
        """Return the fingerprints that may violate the limit while it is not active.

        The container stays the tracker's own. None for all.
        """
        return None if self.always_evaluated else ()

    def is_active(self, tracker: Any) -> bool:
        """Whether an outcome has given the limit something that may refuse a call.

        Asked only where the limit `may_be_active`.
        """
        return bool(tracker)

    def subject(self, attempt: Attempt) -> str:
        """Return what counts as the same attempt when it is refused again."""
        return attempt.likeness

    def is_probe(self, attempt: Attempt) -> bool:
        """Whether the attempt was admitted as a probe: it resets no refusals until it succeeds."""
        return False

    def is_next_probe(self, tracker: Any, attempt: Attempt) -> bool:
        """Whether the limit admits the attempt, although it is reached, as a probe."""
        return False

    def is_probing(self, tracker: Any, at: int | None) -> bool:
        """Whether a probe is in flight, whose outcome the limit waits for."""
        return False

    def allow_retry(self, tracker: Any, subject: str) -> None:
        """Admit one more call, since another has advanced and lifted a ban."""

    def admit(self, tracker: Any, attempt: Attempt) -> None:
        """Count an admitted call."""

    @abstractmethod
    def complete(self, tracker: Any, attempt: Attempt, outcome: Outcome) -> None:
        """Count a call's outcome."""

    def refuse(self, tracker: Any, attempt: Attempt) -> None:
        """Count an attempt that was refused for this limit among others."""

    def release(self, tracker: Any, attempt: Attempt) -> None:
        """Take back the admission of a call that did not run."""

    def cancel(self, tracker: Any, attempt: Attempt) -> None:
        """Note that a call was stopped from outside: it tells nothing, and stays admitted."""

    def effect_for(self, count: int, refused_count: int) -> Effect | None:
        """Return the effect on one more attempt after `count` calls; None for none."""
        return self.escalation.effect_at(count + refused_count + 1, limit_reached=count >= self.max)
