"""Exact binomial tests and bounds (Clopper-Pearson).

A normal approximation would promise too much for the few runs there usually are.
"""

from __future__ import annotations

import math

_HALVINGS = 100
"""Bisection steps: beyond the precision of a double."""


def tail(hits: int, trials: int, share: float) -> float:
    """Return the probability of at most `hits` in independent trials with probability `share`.

    This is the p-value of so few hits if the true share is `share` or more.
    """
    if hits >= trials or share <= 0.0:
        return 1.0
    if hits < 0 or share >= 1.0:
        return 0.0
    log_hit, log_miss = math.log(share), math.log1p(-share)
    log_total = math.lgamma(trials + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(
                log_total
                - math.lgamma(count + 1)
                - math.lgamma(trials - count + 1)
                + count * log_hit
                + (trials - count) * log_miss
            )
            for count in range(hits + 1)
        ),
    )


def upper_bound(hits: int, trials: int, delta: float) -> float:
    """Return the one-sided Clopper-Pearson bound of a share with confidence `1 - delta`.

    This is the largest share for which so few hits have at least probability `delta`.
    """
    if hits >= trials:
        return 1.0
    low, high = hits / trials, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tail(hits, trials, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def needed_trials(max_share: float, delta: float, hits: int = 0) -> int:
    """Return how many trials with so many hits prove that the share is at most `max_share`.

    Without hits that is ln `delta` / ln (1 - `max_share`), rounded up.
    """
    too_few, enough = hits, hits + 1
    while tail(hits, enough, max_share) > delta:
        too_few, enough = enough, enough * 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if tail(hits, middle, max_share) > delta:
            too_few = middle
        else:
            enough = middle
    return enough
