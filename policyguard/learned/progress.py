"""Progress of a session: from its scores, and from what remains to try.

The *search space* holds the candidates of the latest `space` calls that were admitted or refused by
a learned constraint. A candidate is what the policy bans: a tool, a class, or else a call. It is
banned from a refusal, or the failure that taught the ban, until it is visited again without a ban
or state changes. See docs/decisions/0008-search-space.md.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Literal

import msgspec

from policyguard.model.policy import Progress

_MAX_SCORE = sys.float_info.max
"""Integers may be larger; those are invalid too."""

ProgressStatus = Literal["progressing", "plateau", "exhausted", "constrained_out"]


class SearchProgress(msgspec.Struct, eq=False):
    """A session's search. `best` is the score that the latest improvement reached.

    `stale_scores` counts the scores since then. `visited` are the candidates of the latest calls,
    `banned` those that are banned; while none is, a caller may append to `visited` directly, which
    forgets its oldest.
    """

    visited: deque[str]
    best: float | None = None
    stale_scores: int = 0
    banned: dict[str, None] = msgspec.field(default_factory=dict)

    @classmethod
    def begin(cls, settings: Progress) -> SearchProgress:
        """Return the progress of a search that has seen nothing."""
        return cls(deque(maxlen=settings.space))

    def add_score(self, settings: Progress, score: float | None) -> None:
        """Count a score, unless it is missing or not finite: a journal could not hold that."""
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

    def visit(self, candidate: str, *, banned: bool) -> None:
        """Put a candidate last, once: one tried again and again would crowd out the others."""
        visited = self.visited
        while candidate in visited:
            visited.remove(candidate)
        visited.append(candidate)
        if banned:
            self.banned[candidate] = None
        else:
            self.banned.pop(candidate, None)

    def clear_bans(self) -> None:
        """Lift all bans: a state change may have fixed their causes."""
        self.banned.clear()

    def status(self, settings: Progress) -> ProgressStatus:
        """Return the status; what remains to try matters before the scores."""
        if self.banned:
            visited = set(self.visited)
            self.banned = {one: None for one in self.banned if one in visited}
            free = len(visited) - len(self.banned)
            if len(visited) >= settings.exhausted_after:
                if not free:
                    return "exhausted"
                if free < settings.constrained_below * len(visited):
                    return "constrained_out"
        return "plateau" if self.stale_scores >= settings.plateau_after else "progressing"
