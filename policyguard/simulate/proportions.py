"""Shares with their confidence intervals."""

from __future__ import annotations

import math

from policyguard.report.replay.figures import Interval, Share

_Z = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""


def share(count: int, total: int) -> Share:
    """Return a share with its 95 % interval."""
    if not total:
        return Share(count, total)
    return Share(count, total, count / total, wilson_interval(count, total))


def wilson_interval(hits: int, trials: int) -> Interval:
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
