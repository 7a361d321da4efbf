"""What all kinds of limits have in common: each is asked before a call and told what came of it.

A limit is a value of the policy and holds no state; its *tracker* holds what one session (or
turn) has done as far as this limit cares. A session makes a tracker when a call first comes under
the limit.
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

    `refuse_tool` and `until` (progress, turn, session; empty: as the kind itself says) are what is
    refused once the limit is reached, and for how long.
    """

    id: str
    escalation: Escalation
    per_turn: bool
    observe: bool
    refuse_tool: bool = False
    until: str = ""


class LimitChecker(ABC):
    """A kind of limit: repeat, cycle, no_progress, failures, outage, polling.

    With fewer than `least` of what it counts it has nothing to say, unless somebody insists. One
    that is not asked `always` has an empty tracker until an outcome gives it something to count:
    till then admissions and successes mean nothing to it, and nobody needs to ask it. One that
    `counts` takes admissions into account, one that `hears` every success.
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
        """Fresh state for a session or turn."""

    @abstractmethod
    def evaluate(
        self, tracker: Any, attempt: Attempt, changes: StateChanges, refused_count: int
    ) -> Violation | None:
        """What this limit has against the attempt. Changes nothing.

        `insisted` is how many attempts of the same subject were refused and still stand.
        """

    def watched(self, tracker: Any) -> Container[str] | None:
        """The fingerprints of calls that it may have something against while nothing stirs it.

        The container stays the tracker's own. None: of any call.
        """
        return None if self.always_evaluated else ()

    def is_active(self, tracker: Any) -> bool:
        """Whether an outcome has given it something to count beside admissions."""
        return bool(tracker) and not self.always_evaluated

    def subject(self, attempt: Attempt) -> str:
        """What an agent insists on that makes this attempt again and again."""
        return attempt.fingerprint

    def admit(self, tracker: Any, attempt: Attempt) -> None:
        """Take the admitted call into account."""
        return

    @abstractmethod
    def complete(self, tracker: Any, attempt: Attempt, outcome: Outcome) -> None:
        """Take the call's outcome into account."""

    def refuse(self, tracker: Any, attempt: Attempt) -> None:
        """Take into account that an attempt was refused which this limit had something against."""
        return

    def release(self, tracker: Any, attempt: Attempt) -> None:
        """Forget the admission: the call did not run."""
        return

    def effect_for(self, count: int, refused_count: int) -> Effect | None:
        """What the ladder says where `count` of at most `max` have been; None for nothing."""
        return self.escalation.effect_at(count + refused_count + 1, limit_reached=count >= self.max)
