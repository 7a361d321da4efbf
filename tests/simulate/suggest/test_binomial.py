"""Binomial tails and bounds, against exact fractions and published values."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.simulate.suggest.certification import needed_trials, tail, upper_bound


@given(st.integers(0, 60), st.integers(1, 60), st.fractions(0, 1, max_denominator=1000))
def test_the_tail_is_the_sum_of_its_terms(hits: int, trials: int, share: Fraction) -> None:
    exact = sum(
        comb(trials, count) * share**count * (1 - share) ** (trials - count)
        for count in range(min(hits, trials) + 1)
    )
    assert tail(hits, trials, float(share)) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("hits", "trials", "delta", "bound"),
    [
        (0, 10, 0.05, 0.2588655508),  # 1 - 0.05 ** (1 / 10)
        (1, 10, 0.05, 0.3941633),
        (0, 46, 0.1, 1 - 0.1 ** (1 / 46)),
        (2, 20, 0.025, 0.3169827),  # the upper end of the two-sided 95 % interval
        (5, 20, 0.025, 0.4910459),
        (10, 10, 0.05, 1.0),
    ],
)
def test_the_bound_of_clopper_and_pearson(
    hits: int, trials: int, delta: float, bound: float
) -> None:
    assert upper_bound(hits, trials, delta) == pytest.approx(bound, abs=1e-6)


@given(st.integers(0, 40), st.integers(1, 400), st.floats(0.001, 0.5))
def test_the_bound_is_where_the_tail_is_delta(hits: int, more: int, delta: float) -> None:
    trials = hits + more
    assert tail(hits, trials, upper_bound(hits, trials, delta)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(
    ("most", "delta", "hits", "trials"),
    [
        (0.01, 0.1, 0, 230),
        (0.05, 0.1, 0, 45),
        (0.05, 0.05, 0, 59),
        (0.01, 0.05, 0, 299),
        (0.05, 0.1, 1, 77),
    ],
)
def test_how_many_runs_a_guarantee_needs(most: float, delta: float, hits: int, trials: int) -> None:
    assert needed_trials(most, delta, hits) == trials


@given(st.floats(0.001, 0.9), st.floats(0.001, 0.5))
def test_without_hits_the_number_of_trials_is_a_logarithm(most: float, delta: float) -> None:
    assert needed_trials(most, delta) == pytest.approx(log(delta) / log(1 - most), abs=1 + 1e-6)
    assert tail(0, needed_trials(most, delta), most) <= delta


def test_many_trials_neither_overflow_nor_take_long() -> None:
    assert tail(9_800, 1_000_000, 0.01) == pytest.approx(0.0224, abs=0.001)
    assert 0.0101 < upper_bound(10_000, 1_000_000, 0.1) < 0.0102
