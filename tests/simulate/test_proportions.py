"""Proportions and their intervals."""

from __future__ import annotations

import pytest

from policyguard.simulate.sample.proportions import wilson_interval


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Newcombe 1998, table I, method 3 (score, without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_intervals(
    hits: int, trials: int, low: float, high: float
) -> None:
    found = wilson_interval(hits, trials)
    assert found == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("trials", range(1, 200))
def test_no_hits_start_at_0_and_only_hits_end_at_1(trials: int) -> None:
    assert wilson_interval(0, trials)[0] == 0.0
    assert wilson_interval(trials, trials)[1] == 1.0
    assert wilson_interval(trials, trials)[0] == pytest.approx(1 - wilson_interval(0, trials)[1])
