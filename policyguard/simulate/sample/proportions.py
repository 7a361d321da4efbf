"""Shares with their 95 % intervals: of all sessions, or estimated from a stratified sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from policyguard.report.replay.figures import Interval, Share

_Z = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""


def share(count: int, total: int) -> Share:
    """Return a share with its 95 % interval."""
    if not total:
        return Share(count, total)
    return Share(count, total, count / total, wilson_interval(count, total))


def wilson_interval(hits: float, trials: float) -> Interval:
    """Return the 95 % Wilson score interval of a proportion (1927, without correction).

    With no hits it starts at exactly 0, with only hits it ends at exactly 1, despite rounding.
    """
    rate = hits / trials
    center = rate + _Z * _Z / (2 * trials)
    spread = _Z * math.sqrt(rate * (1 - rate) / trials + _Z * _Z / (4 * trials * trials))
    scale = 1 + _Z * _Z / trials
    low = (center - spread) / scale if hits else 0.0
    high = (center + spread) / scale if hits < trials else 1.0
    return low, high


class StratumSample(NamedTuple):
    """What a sample of one stratum found.

    Of `size` session trees `drawn` were drawn without replacement. `hits` of `trials` (sessions,
    or errors, of these trees) count; `squares` is the sum over trees of their squared trials.
    """

    size: int
    drawn: int
    hits: int
    trials: int
    squares: int

    @property
    def rate(self) -> float:
        """The share of hits among the trials that were drawn."""
        return self.hits / self.trials

    @property
    def weight(self) -> float:
        """The estimated trials in the whole stratum."""
        return self.size * self.trials / self.drawn

    @property
    def alike(self) -> float:
        """The effective number of trials, as if those of one tree were fully alike (Kish, 1965)."""
        return self.trials * self.trials / self.squares


def estimate_share(strata: Sequence[StratumSample]) -> tuple[float, Interval] | None:
    """Estimate a share of the whole from a stratified sample; None if no stratum has a trial.

    The interval is Wilson's with the effective number of trials in place of the number, as Korn
    and Graubard (1998) did for another one. It is that of the estimated variance, but no more than
    if the rate of all strata were the same: a stratum without hits has no variance, and yet is not
    certain.

    Like that of all sessions it is for sessions of this kind. Uncertain are then what was not
    drawn, by `(1 - drawn / size) / drawn`, and the kind, by `1 / size`: together `1 / drawn`. So
    the sizes of strata decide their weights, and no interval is narrower than that of all.
    """
    strata = [stratum for stratum in strata if stratum.trials]
    total = sum(stratum.weight for stratum in strata)
    if not total:
        return None
    weights = [stratum.weight / total for stratum in strata]
    pairs = [*zip(weights, strata, strict=True)]
    rate = min(1.0, sum(weight * stratum.rate for weight, stratum in pairs))
    spread = sum(weight**2 / stratum.alike for weight, stratum in pairs)
    variance = sum(
        weight**2 * stratum.rate * (1 - stratum.rate) / stratum.alike for weight, stratum in pairs
    )
    trials = 1 / spread
    if variance:
        trials = min(trials, rate * (1 - rate) / variance)
    return rate, wilson_interval(rate * trials, trials)
