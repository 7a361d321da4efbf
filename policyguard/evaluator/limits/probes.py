"""Probes: calls that a full streak of failures admits because they have not failed in it.

Without them a streak that only a success can end refuses the very call that would end it.
"""

from __future__ import annotations

import msgspec

from policyguard.evaluator.attempt import Attempt


class ProbeSchedule(msgspec.Struct, eq=False):
    """Which call a streak admits next as a probe: an untried one, one at a time, ever more rarely.

    `tried` are the likenesses that failed in the streak; of more than `max_tried` every call
    counts as tried. `probe` is the latest probe while it has no outcome, `batch` its batch. As many
    attempts are refused before the next probe (`refused`) as probes have failed (`failed`); the
    parallel calls of one batch are one refusal, and none if one of them is the probe. A probe
    without an answer (cancelled, or never reported) has failed.

    Attempts beside a probe in flight are not counted: parallel calls did not wait for it. Of more
    than `patience` the agent has gone on without it, unless its own function still runs.
    """

    patience: int
    tried: dict[str, None] = msgspec.field(default_factory=dict)
    probe: Attempt | None = None
    batch: str = ""
    failed: int = 0
    refused: int = 0
    refused_batch: str = ""
    beside: int = 0

    def is_due(self, attempt: Attempt, max_tried: int, timeout: int) -> bool:
        """Whether an attempt may be the next probe. One in flight is given up after `timeout`."""
        failed = self.failed + (self.probe is not None)
        return (
            attempt.likeness not in self.tried
            and len(self.tried) < max_tried
            and self.refused >= failed
            and not (attempt.batch and attempt.batch == self.batch)
            and not self.is_probing(attempt.at, timeout)
        )

    def is_probing(self, at: int | None, timeout: int) -> bool:
        """Whether a probe may still return."""
        probe = self.probe
        if probe is None or probe.is_given_up:
            return False
        if probe.is_held:
            return True
        if self.beside > self.patience:
            return False
        if at is None or probe.at is None:
            return True
        return at - probe.at <= timeout

    def begin(self, attempt: Attempt) -> None:
        """Take an admitted attempt as the probe."""
        if self.probe is not None:
            self.fail()
        self.probe = attempt
        self.batch = attempt.batch
        self.beside = 0

    def refuse(self, attempt: Attempt, timeout: int) -> None:
        """Count a refused attempt, unless it only came before the probe's outcome."""
        is_probing = self.is_probing(attempt.at, timeout)
        if not attempt.batch or attempt.batch not in (self.batch, self.refused_batch):
            if is_probing:
                self.beside += 1
            else:
                self.refused += 1
        self.refused_batch = attempt.batch

    def end(self, attempt: Attempt) -> None:
        """Let another call be the probe."""
        if self.probe is attempt:
            self.probe = None

    def cancel(self, attempt: Attempt) -> None:
        """Let another call be the probe, but not sooner than after a failed one."""
        if self.probe is attempt:
            self.probe = None
            self.fail()

    def fail(self) -> None:
        """Note that a probe has failed: the next waits longer."""
        self.failed += 1
        self.refused = 0

    def add_failure(self, attempt: Attempt, max_tried: int, *, is_probe: bool) -> None:
        """Note a call that failed in the streak."""
        if len(self.tried) < max_tried:
            self.tried[attempt.likeness] = None
        if is_probe:
            self.fail()
