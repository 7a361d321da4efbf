"""The guarantee: which candidates, tested in a given order, do at most the accepted harm.

Learn then Test (Angelopoulos, Bates, Candès, Jordan, Lei 2021) with fixed-sequence testing. The
hypothesis that a candidate harms more than `max_harm` of the successful runs is tested on runs that
were not used to find or order the candidates. Candidates are tested in order, each at the full
`delta`, until one hypothesis cannot be rejected. The first true hypothesis is rejected with
probability at most `delta`, and later ones only if it is. So with probability at least `1 - delta`
*all* passing candidates harm at most `max_harm`, and choosing among them needs no correction.

Tests and bounds are exact (Clopper-Pearson): a normal approximation would promise too much for the
few runs there usually are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

_HALVINGS = 100
"""Bisection steps: beyond the precision of a double."""


def split_runs(
    names: Sequence[str], seed: int, min_held_out: int
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the indices of the runs to explore with, and of those held out.

    The split is random but the same for the same names and `seed`. Half are held out; if that is
    less than `min_held_out`, then that many, unless less than a quarter remains to explore with.
    """
    count = len(names)
    held_out = count - count // 2
    if held_out < min_held_out <= count - count // 4:
        held_out = min_held_out
    order = sorted(range(count), key=lambda index: (_shuffle_key(names[index], seed), index))
    return frozenset(order[held_out:]), frozenset(order[:held_out])


def _shuffle_key(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}\n{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class HarmTest(NamedTuple):
    """The test of a candidate on held-out runs.

    `p_value`: the probability of so little harm if the true harm exceeds what is accepted.
    `bound`: the upper bound of its harm, with confidence `1 - delta` for all candidates at once.
    """

    p_value: float
    bound: float
    passed: bool


def certify(harmed: Sequence[int], trials: int, max_harm: float, delta: float) -> list[HarmTest]:
    """Test candidates in order; `harmed` counts the harmed runs of each among `trials`."""
    tests: list[HarmTest] = []
    passed = trials > 0
    for count in harmed:
        p_value = tail(count, trials, max_harm) if trials else 1.0
        passed = passed and p_value <= delta
        bound = upper_bound(count, trials, delta / len(harmed)) if trials else 1.0
        tests.append(HarmTest(p_value, bound, passed))
    return tests


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
