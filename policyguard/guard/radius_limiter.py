"""The policy's `radius` at work: what it says to a call, and what the call's outcome does to it."""

from __future__ import annotations

from policyguard.compiler.build.radius import RadiusEntry
from policyguard.evaluator.attempt import Attempt
from policyguard.learned.radius_schedule import RadiusState
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome


class RadiusLimiter:
    """The schedules of a policy, first match first. Where a session stands is among its trackers.

    Only calls with targets are judged and counted: of how many at once is safe, others say nothing.
    """

    def __init__(self, entries: tuple[RadiusEntry, ...]) -> None:
        self._entries = entries
        self._schedules = {entry.id: entry.schedule for entry in entries}

    def check(self, attempt: Attempt) -> list[Violation]:
        """Return what the radius has against the call; note which schedule the call is under."""
        if not self._entries or not attempt.targets:
            return []
        id_ = attempt.radius = self._find_schedule(attempt)
        if not id_:
            return []
        reach: RadiusState | None = attempt.session.trackers.get(id_)
        allowed = self._schedules[id_].steps[reach.step if reach is not None else 0]
        if allowed is None or len(attempt.targets) <= allowed:
            return []
        touched = len(set(attempt.targets))
        if touched <= allowed:
            return []
        one = "one target" if allowed == 1 else f"{allowed} targets"
        since = " after what has failed" if reach is not None and reach.step else ""
        return [
            Violation(
                id_,
                Effect.BLOCK,
                "radius",
                f"this call touches {touched} targets, and{since} a call may touch {one} at most",
                f"split it into calls that touch {one} each, and see that they succeed",
                touched,
                allowed,
            )
        ]

    def complete(self, attempt: Attempt, outcome: Outcome) -> None:
        """Part of the fold: a call under a schedule has its outcome. A pending one says nothing."""
        schedule = self._schedules.get(attempt.radius)
        if schedule is None or outcome.state == "pending":
            return
        trackers = attempt.session.trackers
        reach = trackers.get(attempt.radius)
        if reach is None:
            reach = trackers[attempt.radius] = RadiusState()
        reach.observe(
            schedule,
            ok=outcome.ok,
            blame=outcome.blame,
            error=outcome.signature or f"error:{outcome.error_fingerprint}",
            batch=attempt.batch,
        )

    def _find_schedule(self, attempt: Attempt) -> str:
        for entry in self._entries:
            if entry.when is None:
                return entry.id
            try:
                if entry.when(attempt.activation) is not False:
                    return entry.id
            except ExpressionError as error:
                # What cannot be decided counts as a match, as in any other first-match list.
                attempt.add_error(entry.id, error)
                return entry.id
        return ""
