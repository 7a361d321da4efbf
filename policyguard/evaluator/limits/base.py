"""The common base of the kinds of limits.

A limit is a value of the policy without state; its *tracker* holds what one session or turn has
counted for it, made when a call first comes under the limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any

import msgspec

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.limits.state_changes import StateChanges
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class LimitSettings(msgspec.Struct, frozen=True):
    """What every kind of limit is given.

    `refuse_tool`: once reached, the limit bans the tool instead of the call. `until` is how long
    (progress, turn, session; empty for what the kind itself does).
    """

    id: str
    escalation: Escalation
    per_turn: bool
    observe: bool
    refuse_tool: bool = False
    until: str = ""


class LimitChecker(ABC):
    """A limit: repeat, cycle, no_progress, failures, outage or polling.

    Below `min_count` it finds no violation, unless attempts were refused. Unless it is
    `always_evaluated`, its tracker stays empty, and it is not asked, until an outcome gives it
    something to count. With `needs_admissions` it counts admissions, with `needs_successes` every
    success.
    """

    needs_admissions = False

    __slots__ = (
        "always_evaluated",
        "escalates",
        "escalation",
        "id",
        "max",
        "min_count",
        "needs_successes",
        "observe",
        "per_turn",
        "sets_bans",
        "settings",
    )

    def __init__(
        self,
        settings: LimitSettings,
        max: int,  # noqa: A002 - the field's name
        *,
        always_evaluated: bool = True,
    ) -> None:
        self.settings = settings
        self.id = settings.id
        self.escalation = settings.escalation
        self.observe = settings.observe
        self.per_turn = settings.per_turn
        self.escalates = bool(settings.escalation.thresholds)
        self.sets_bans = settings.refuse_tool or bool(settings.until)
        self.max = max
        self.always_evaluated = self.needs_successes = always_evaluated or not max
        lowest = settings.escalation.lowest_threshold
        self.min_count = max if lowest is None else min(max, lowest - 1)

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
        """Whether an outcome has given the limit something to count besides admissions."""
        return bool(tracker) and not self.always_evaluated

    def subject(self, attempt: Attempt) -> str:
        """Return what counts as the same attempt when it is refused again."""
        return attempt.fingerprint

    def admit(self, tracker: Any, attempt: Attempt) -> None:
        """Count an admitted call."""
        return

    @abstractmethod
    def complete(self, tracker: Any, attempt: Attempt, outcome: Outcome) -> None:
        """Count a call's outcome."""

    def refuse(self, tracker: Any, attempt: Attempt) -> None:
        """Count an attempt that was refused for this limit among others."""
        return

    def release(self, tracker: Any, attempt: Attempt) -> None:
        """Take back the admission of a call that did not run."""
        return

    def effect_for(self, count: int, refused_count: int) -> Effect | None:
        """Return the effect on one more attempt after `count` calls; None for none."""
        return self.escalation.effect_at(count + refused_count + 1, limit_reached=count >= self.max)
