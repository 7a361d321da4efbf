"""The adaptive cap on targets per call: fewer after failures, more again after successes."""

from __future__ import annotations

import msgspec


class RadiusSchedule(msgspec.Struct, frozen=True):
    """One schedule of the policy's `radius`, compiled.

    `steps` go from the widest cap to the narrowest; None is unlimited. `shrink_after` failures with
    one error move to the next narrower, `widen_after` successes to the next wider (None: never).
    Failures count if `blame` lists who is blamed; those of the harness never count. At most
    `max_errors` errors are counted at once.
    """

    steps: tuple[int | None, ...]
    shrink_after: int
    widen_after: int | None
    blame: frozenset[str]
    max_errors: int


class RadiusState(msgspec.Struct, eq=False):
    """A session's current `step` in a schedule, and the outcomes since.

    `failures` are counted by error since the last success, `successes` since the last failure or
    step. `batch` and `last_failed` are those of the latest outcome.
    """

    step: int = 0
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    successes: int = 0
    batch: str = ""
    last_failed: bool = False

    def observe(
        self,
        schedule: RadiusSchedule,
        *,
        ok: bool,
        blame: str = "",
        error: str = "",
        batch: str = "",
    ) -> None:
        """Count the outcome of a call with targets; `error` distinguishes failures.

        Of one batch only the first failure counts, and a success only if it is the first outcome.
        """
        if not ok and (blame == "harness" or blame not in schedule.blame):
            return
        if batch and batch == self.batch and (ok or self.last_failed):
            return
        self.batch, self.last_failed = batch, not ok
        if ok:
            self._add_success(schedule)
        else:
            self._add_failure(schedule, error)

    def _add_success(self, schedule: RadiusSchedule) -> None:
        self.failures.clear()
        if not self.step or schedule.widen_after is None:
            return
        self.successes += 1
        if self.successes >= schedule.widen_after:
            self.step -= 1
            self.successes = 0

    def _add_failure(self, schedule: RadiusSchedule, error: str) -> None:
        self.successes = 0
        count = self.failures[error] = self.failures.pop(error, 0) + 1
        if count >= schedule.shrink_after:
            self.step = min(self.step + 1, len(schedule.steps) - 1)
            self.failures.clear()
        elif len(self.failures) > schedule.max_errors:
            del self.failures[next(iter(self.failures))]
