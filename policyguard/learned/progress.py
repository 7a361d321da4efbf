"""Whether a session still gets anywhere: from its scores, and from what is left to try.

The *search space* of a session is the ways of acting of the latest `space` calls that it has been
let through with or that a learned constraint has refused. What a way is depends on what is banned:
a tool or a class where the policy bans these, else a call. A way is banned from the refusal, or
the failure that taught the ban, until it is met again without a ban, or until a change of state
puts bans on trial. See docs/decisions/0008-what-the-search-space-is.md.
"""

from __future__ import annotations

import sys
from typing import Literal

from policyguard.model.policy import Progress

_MAX_SCORE = sys.float_info.max
"""An integer may be larger, and is no score either."""

ProgressStatus = Literal["progressing", "plateau", "exhausted", "constrained_out"]


class SearchProgress:
    """How a session has fared. `best` is the score that the latest improvement reached.

    `stale` counts the scores since then, `met` are the ways of the latest `space` calls, `banned`
    those of them that are. While none is, whoever lets a way through may just put it there.
    """

    __slots__ = ("banned", "best", "stale_scores", "visited")

    def __init__(self) -> None:
        self.best: float | None = None
        self.stale_scores = 0
        self.visited: list[str] = []
        self.banned: dict[str, None] = {}

    def add_score(self, settings: Progress, score: float | None) -> None:
        """Take an outcome's score into account; one without a score says nothing.

        Nor does one that is not finite: no journal could tell it from none.
        """
        if score is None or not -_MAX_SCORE <= score <= _MAX_SCORE:
            return
        if self.best is None:
            self.best = score
            return
        gain = self.best - score if settings.direction == "minimize" else score - self.best
        if gain > settings.min_delta:
            self.best = score
            self.stale_scores = 0
        else:
            self.stale_scores += 1

    def visit(self, settings: Progress, candidate: str, *, banned: bool) -> None:
        """A way has been let through, or refused by a constraint: it takes one place, the last.

        Else an agent that insists on one banned way would soon be seen to know no other.
        """
        met = self.visited
        while candidate in met:
            met.remove(candidate)
        met.append(candidate)
        if len(met) > settings.space:
            del met[0]
        if banned:
            self.banned[candidate] = None
        else:
            self.banned.pop(candidate, None)

    def clear_bans(self) -> None:
        """Something has changed that may have mended whatever was banned."""
        self.banned.clear()

    def status(self, settings: Progress) -> ProgressStatus:
        """The word for it; what is left to try matters before what has been reached."""
        if self.banned:
            known = set(self.visited)
            self.banned = {way: None for way in self.banned if way in known}
            free = len(known) - len(self.banned)
            if len(known) >= settings.exhausted_after:
                if not free:
                    return "exhausted"
                if free < settings.constrained_below * len(known):
                    return "constrained_out"
        return "plateau" if self.stale_scores >= settings.plateau_after else "progressing"
