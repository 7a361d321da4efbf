"""Shares, and how far they can be trusted."""

from __future__ import annotations

import math

from policyguard.report.replay.figures import Interval, Share

_Z = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""


def share(count: int, total: int) -> Share:
    """A share with its interval."""
    if not total:
        return Share(count, total)
    return Share(count, total, count / total, wilson_interval(count, total))


def wilson_interval(hits: int, trials: int) -> Interval:
    """The 95 % interval of a proportion (Wilson 1927, score interval, without correction).

    Of none it begins at 0, and of all it ends at 1, exactly: what rounding leaves there is cut off.
    """
    rate = hits / trials
    middle = rate + _Z * _Z / (2 * trials)
    spread = _Z * math.sqrt(rate * (1 - rate) / trials + _Z * _Z / (4 * trials * trials))
    scale = 1 + _Z * _Z / trials
    least = (middle - spread) / scale if hits else 0.0
    most = (middle + spread) / scale if hits < trials else 1.0
    return least, most
