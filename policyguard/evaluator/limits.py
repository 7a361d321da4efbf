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
from policyguard.evaluator.changes import Changes
from policyguard.evaluator.ladder import Ladder
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.outcome import Outcome


class Terms(msgspec.Struct, frozen=True):
    """What every kind of limit is given.

    `refuse_tool` and `until` (progress, turn, session; empty: as the kind itself says) are what is
    refused once the limit is reached, and for how long.
    """

    id: str
    ladder: Ladder
    per_turn: bool
    observe: bool
    refuse_tool: bool = False
    until: str = ""


class Limit(ABC):
    """A kind of limit: repeat, cycle, no_progress, failures, outage, polling.

    With fewer than `least` of what it counts it has nothing to say, unless somebody insists. One
    that is not asked `always` has an empty tracker until an outcome gives it something to count:
    till then admissions and successes mean nothing to it, and nobody needs to ask it. One that
    `counts` takes admissions into account, one that `hears` every success.
    """

    counts = False

    __slots__ = (
        "always",
        "bans",
        "climbs",
        "hears",
        "id",
        "ladder",
        "least",
        "max",
        "observe",
        "per_turn",
        "terms",
    )

    def __init__(
        self,
        terms: Terms,
        max: int,  # noqa: A002 - the field's name
        *,
        always: bool = True,
    ) -> None:
        self.terms = terms
        self.id = terms.id
        self.ladder = terms.ladder
        self.observe = terms.observe
        self.per_turn = terms.per_turn
        self.climbs = bool(terms.ladder.steps)
        self.bans = terms.refuse_tool or bool(terms.until)
        self.max = max
        self.always = self.hears = always or not max
        lowest = terms.ladder.lowest
        self.least = max if lowest is None else min(max, lowest - 1)

    @abstractmethod
    def tracker(self) -> Any:
        """Fresh state for a session or turn."""

    @abstractmethod
    def judge(
        self, tracker: Any, attempt: Attempt, changes: Changes, insisted: int
    ) -> Violation | None:
        """What this limit has against the attempt. Changes nothing.

        `insisted` is how many attempts of the same subject were refused and still stand.
        """

    def seen(self, tracker: Any) -> Container[str] | None:
        """The fingerprints of calls that it may have something against while nothing stirs it.

        The container stays the tracker's own. None: of any call.
        """
        return None if self.always else ()

    def stirs(self, tracker: Any) -> bool:
        """Whether an outcome has given it something to count beside admissions."""
        return bool(tracker) and not self.always

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

    def answer(self, count: int, insisted: int) -> Effect | None:
        """What the ladder says where `count` of at most `max` have been; None for nothing."""
        return self.ladder.answer(count + insisted + 1, over=count >= self.max)
