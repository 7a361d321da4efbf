"""The guarantee: which candidates, tested in a given order, do at most the accepted harm.

Learn then Test (Angelopoulos, Bates, Candès, Jordan, Lei 2021) with fixed-sequence testing. The
hypothesis that a candidate harms more than `max_harm` of the successful runs is tested on runs that
were not used to find or order the candidates. Candidates are tested in order, each at the full
`delta`, until one hypothesis cannot be rejected. The first true hypothesis is rejected with
probability at most `delta`, and later ones only if it is. So with probability at least `1 - delta`
*all* passing candidates harm at most `max_harm`, and choosing among them needs no correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policyguard.simulate.suggest.binomial import tail, upper_bound


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
