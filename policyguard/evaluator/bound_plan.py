"""A plan as one session walks it: the plan's limits, with what this session or turn has done."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.cycle import CycleChecker
from policyguard.evaluator.limits.refusals import RefusalStreak

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt
    from policyguard.evaluator.plan import Plan


class BoundPlan:
    """The trackers of a plan's limits, in the plan's order; found again at each call.

    The others are for calls while the session is calm (see `SessionState`), that is, for nearly
    all of them: most limits then have nothing to say and nothing to count. `repetition` (of calls,
    or of polls) and `cycle` are to be told of an admission; each has a name, since a method that is
    now one class's and now another's is slow to call. A call that is in none of `seen` has nothing
    against it from these limits, unless one must be `asked`: about any call, or (where the session
    was `spawned` by another) whether that one is halted. With `hears` some limit wants to know of
    every result.

    `refused` is the tracker of `refusals`, None where the plan has no such limit.
    """

    __slots__ = (
        "cycle",
        "limits",
        "must_evaluate",
        "needs_successes",
        "plan",
        "refusal_streak",
        "repetition",
        "watched",
    )

    def __init__(
        self,
        plan: Plan,
        limits: tuple[tuple[LimitChecker, Any], ...],
        refusal_streak: RefusalStreak | None,
        *,
        has_parent: bool,
    ) -> None:
        self.plan = plan
        self.limits = limits
        self.refusal_streak = refusal_streak
        counting = [pair for pair in limits if pair[0].needs_admissions]
        self.cycle = next((pair for pair in counting if isinstance(pair[0], CycleChecker)), None)
        repetitions = tuple(pair for pair in counting if pair is not self.cycle)
        self.repetition: tuple[Any, Any] | None = repetitions[0] if repetitions else None
        if len(repetitions) > 1:
            self.repetition = _COMBINED_REPETITION, repetitions
        self.needs_successes = any(
            limit.needs_successes or (limit.sets_bans and limit.always_evaluated)
            for limit in plan.limits
        )
        seen = [limit.watched(tracker) for limit, tracker in limits]
        self.must_evaluate = has_parent or None in seen
        self.watched: tuple[Container[str], ...] = tuple(
            calls for calls in seen if calls is not None and calls != ()
        )


class _CombinedRepetition:
    """A tool's own `repeat` beside the `polling` of a wider level: each is told of an admission."""

    def admit(self, trackers: tuple[tuple[LimitChecker, Any], ...], attempt: Attempt) -> None:
        for limit, tracker in trackers:
            limit.admit(tracker, attempt)


_COMBINED_REPETITION = _CombinedRepetition()
