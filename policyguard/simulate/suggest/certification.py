"""The guarantee: which of some candidates, in a given order, are shown to do little harm.

Learn then Test (Angelopoulos, Bates, Candès, Jordan, Lei 2021) with fixed-sequence testing: that a
candidate harms more than `most` of the successful runs is a hypothesis, tested on runs that had no
part in making or ordering the candidates. They are tested in that order, each at the full `delta`,
until the first that cannot be rejected. The first true one that is met is rejected with probability
at most `delta`, and without that none behind it is: so with probability at least `1 - delta` *all*
that pass harm at most `most`, and whoever picks among them needs no correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policyguard.simulate.suggest.binomial import tail, upper_bound


class HarmTest(NamedTuple):
    """What held-out runs say of a candidate.

    `p_value`: how likely so little harm is where the true share is more than what is allowed.
    `bound`: its share of harm at most; with confidence `1 - delta` for all candidates at once.
    """

    p_value: float
    bound: float
    passed: bool


def certify(harmed: Sequence[int], trials: int, max_harm: float, delta: float) -> list[HarmTest]:
    """Test candidates in their order; `harmed`: of how many of the `of` held-out runs."""
    tests: list[HarmTest] = []
    going = trials > 0
    for count in harmed:
        p_value = tail(count, trials, max_harm) if trials else 1.0
        going = going and p_value <= delta
        bound = upper_bound(count, trials, delta / len(harmed)) if trials else 1.0
        tests.append(HarmTest(p_value, bound, going))
    return tests
