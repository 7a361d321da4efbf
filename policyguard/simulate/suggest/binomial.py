"""Exact statements about a share from a count: binomial tails, the bound of Clopper and Pearson.

Nothing here approximates by a normal distribution: with few runs, which is what there is, that
promises too much.
"""

from __future__ import annotations

import math

_HALVINGS = 100
"""Steps of a bisection: more than a double can tell apart."""


def tail(hits: int, trials: int, share: float) -> float:
    """The probability of at most `hits` in so many independent trials, each of which has `share`.

    As a p-value: how likely so few hits are where the true share is `share` (or more).
    """
    if hits >= trials or share <= 0.0:
        return 1.0
    if hits < 0 or share >= 1.0:
        return 0.0
    yes, no = math.log(share), math.log1p(-share)
    every = math.lgamma(trials + 1)
    return min(
        1.0,
        math.fsum(
            math.exp(
                every
                - math.lgamma(count + 1)
                - math.lgamma(trials - count + 1)
                + count * yes
                + (trials - count) * no
            )
            for count in range(hits + 1)
        ),
    )


def upper_bound(hits: int, trials: int, delta: float) -> float:
    """The share that is not exceeded with confidence `1 - delta` (Clopper and Pearson, one-sided).

    The largest share under which so few hits are no less likely than `delta`.
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
    """How many trials it takes so that with so many hits the share is shown to be at most `most`.

    Without hits that is ln `delta` / ln (1 - `most`), rounded up.
    """
    few, enough = hits, hits + 1
    while tail(hits, enough, max_share) > delta:
        few, enough = enough, enough * 2
    while enough - few > 1:
        middle = (few + enough) // 2
        if tail(hits, middle, max_share) > delta:
            few = middle
        else:
            enough = middle
    return enough
