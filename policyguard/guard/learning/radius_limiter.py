"""Applies the policy's `radius`: caps on the targets of a call that failures narrow."""

from __future__ import annotations

from policyguard.compiler.build.radius import RadiusEntry
from policyguard.evaluator.attempt import Attempt
from policyguard.learned.radius_schedule import RadiusState
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.outcome import Outcome


class RadiusLimiter:
    """The schedules of a policy, first match first. Their states are trackers of sessions.

    Calls without targets are neither checked nor counted.
    """

    def __init__(self, entries: tuple[RadiusEntry, ...]) -> None:
        self._entries = entries
        self._schedules = {entry.id: entry.schedule for entry in entries}

    def check(self, attempt: Attempt) -> list[Violation]:
        """Return the violations of a call, and set the schedule that applies to it."""
        if not self._entries or not attempt.targets:
            return []
        id_ = attempt.radius = self._find_schedule(attempt)
        if not id_:
            return []
        state: RadiusState | None = attempt.session.trackers.get(id_)
        allowed = self._schedules[id_].steps[state.step if state is not None else 0]
        if allowed is None or len(attempt.targets) <= allowed:
            return []
        count = len(set(attempt.targets))
        if count <= allowed:
            return []
        targets = "one target" if allowed == 1 else f"{allowed} targets"
        since = " after recent failures" if state is not None and state.step else ""
        return [
            Violation(
                id_,
                Effect.BLOCK,
                "radius",
                f"this call has {count} targets, and{since} a call may have at most {targets}",
                f"split it into calls with {targets} each, and see that they succeed",
                count,
                allowed,
            )
        ]

    def complete(self, attempt: Attempt, outcome: Outcome) -> None:
        """Update the state of a call's schedule with its outcome, if it succeeded or failed."""
        schedule = self._schedules.get(attempt.radius)
        if schedule is None or outcome.state in ("pending", "cancelled"):
            return
        trackers = attempt.session.trackers
        state = trackers.get(attempt.radius)
        if state is None:
            state = trackers[attempt.radius] = RadiusState()
        state.observe(
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
                # Undecidable conditions count as matches, as in any first-match list.
                attempt.add_error(entry.id, error)
                return entry.id
        return ""
