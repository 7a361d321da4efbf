"""Whether a session still gets anywhere: from its scores, and from what is left to try.

The *search space* of a session is the ways of acting that it has been let through with or that a
learned constraint has refused, the latest `space` of them. What a way is depends on what is banned:
a tool or a class where the policy bans these, else a call. A way is banned from the refusal, or
the failure that taught the ban, until it is met again without a ban, or until a change of state
puts bans on trial. See docs/decisions/0008-what-the-search-space-is.md.
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

from policyguard.model.policy import Progress

Standing = Literal["progressing", "plateau", "exhausted", "constrained_out"]


class Course:
    """How a session has fared. `best` is the score that the latest improvement reached.

    `stale` counts the scores since then, `ways` says of each way whether it is banned (the latest
    met last), `banned` how many are.
    """

    __slots__ = ("banned", "best", "stale", "ways")

    def __init__(self) -> None:
        self.best: float | None = None
        self.stale = 0
        self.ways: dict[str, bool] = {}
        self.banned = 0

    def score(self, aim: Progress, score: float | None) -> None:
        """Take an outcome's score into account; one without a score says nothing.

        Nor does one that is not finite: no journal could tell it from none.
        """
        if score is None or not isfinite(score):
            return
        if self.best is None:
            self.best = score
            return
        gain = self.best - score if aim.direction == "minimize" else score - self.best
        if gain > aim.min_delta:
            self.best = score
            self.stale = 0
        else:
            self.stale += 1

    def meet(self, aim: Progress, way: str, *, banned: bool) -> None:
        """A way has been let through, or refused by a constraint."""
        ways = self.ways
        known = ways.pop(way, False)
        ways[way] = banned
        if banned is not known:
            self.banned += banned - known
        if len(ways) > aim.space:
            self.banned -= ways.pop(next(iter(ways)))

    def lift(self) -> None:
        """Something has changed that may have mended whatever was banned."""
        if self.banned:
            self.ways = dict.fromkeys(self.ways, False)
            self.banned = 0

    def standing(self, aim: Progress) -> Standing:
        """The word for it; what is left to try matters before what has been reached."""
        known = len(self.ways) if self.banned else 0
        if known >= aim.exhausted_after:
            free = known - self.banned
            if not free:
                return "exhausted"
            if free < aim.constrained_below * known:
                return "constrained_out"
        return "plateau" if self.stale >= aim.plateau_after else "progressing"
