"""The guarantee, tested against runs of which the true harm is known.

Runs repeat a call a number of times that is drawn from a known distribution, and the candidates are
the thresholds of a limit: the true harm of each is known. Over many draws the promise fails in no
more than `delta` of them.
"""

from __future__ import annotations

import functools
import math
import random

import pytest

from policyguard.simulate.suggest.candidate_path import ExploredSpace, build_path
from policyguard.simulate.suggest.certification import certify, needed_trials, split_runs

THRESHOLDS = (6, 5, 4, 3, 2, 8, 12)
"""The first is the policy's own."""


def test_candidates_pass_until_the_first_that_does_not() -> None:
    tests = certify([0, 0, 3, 0], 46, 0.05, 0.1)
    assert [test.passed for test in tests] == [True, True, False, False]
    assert tests[0].p_value == pytest.approx(0.95**46)
    # For all of them at once: each is given a quarter of what may fail.
    assert tests[0].bound == pytest.approx(1 - 0.025 ** (1 / 46))


@pytest.mark.parametrize(("runs", "passes"), [(44, False), (45, True)])
def test_one_run_too_few_gives_no_guarantee(runs: int, passes: bool) -> None:
    assert needed_trials(0.05, 0.1) == 45
    assert certify([0], runs, 0.05, 0.1)[0].passed is passes


def test_without_runs_there_is_no_guarantee() -> None:
    assert certify([0], 0, 0.5, 0.5)[0] == (1.0, 1.0, False)


def _harm(threshold: int, stay: float) -> float:
    """The share of successful runs with more repetitions than `threshold`."""
    return stay**threshold


def _draw(chance: random.Random, stay: float) -> int:
    """How often a run repeats a call: geometric."""
    return math.floor(math.log(1 - chance.random()) / math.log(stay))


def _refuses(threshold: int, repetitions: int) -> bool:
    return repetitions >= threshold


def _outcome(seed: int, stay: float, most: float, delta: float) -> tuple[float | None, float]:
    """The true harm of what is guaranteed (None: nothing is), and of what only looked harmless."""
    chance = random.Random(seed)  # noqa: S311 - draws that can be made again
    good = [_draw(chance, stay) for _ in range(160)]
    bad = [_draw(chance, 0.9) for _ in range(40)]
    first, held = split_runs([f"{seed} {n}" for n in range(160)], seed, needed_trials(most, delta))
    every = [*(good[n] for n in sorted(first)), *bad]
    masks = [sum(_refuses(t, r) << n for n, r in enumerate(every)) for t in THRESHOLDS]
    ones = (1 << len(first)) - 1
    explored = ExploredSpace([masks], 0, succeeded=ones, failed=((1 << len(every)) - 1) ^ ones)
    found = [THRESHOLDS[one] for (one,) in build_path(explored, int(most * len(first)))]
    harmed = [sum(_refuses(threshold, good[n]) for n in held) for threshold in found]
    passed = [
        t
        for t, test in zip(found, certify(harmed, len(held), most, delta), strict=True)
        if test.passed
    ]
    return (_harm(min(passed), stay) if passed else None), _harm(found[-1], stay)


def _failures(seeds: range, stay: float, most: float, delta: float) -> tuple[float, float, float]:
    """How often there was a promise, how often a wrong one, and how often a guess would be."""
    outcomes = [_outcome(seed, stay, most, delta) for seed in seeds]
    made = sum(truth is not None for truth, _ in outcomes)
    wrong = sum(truth is not None and truth > most for truth, _ in outcomes)
    guessed = sum(truth > most for _, truth in outcomes)
    return made / len(seeds), wrong / len(seeds), guessed / len(seeds)


def _check(seeds: range) -> None:
    most, delta = 0.05, 0.1
    margin = 4 * math.sqrt(delta * (1 - delta) / len(seeds))
    for stay in (0.3, 0.38, 0.5, 0.61):
        made, wrong, guessed = _failures(seeds, stay, most, delta)
        assert wrong <= delta + margin, stay
        assert made > 0.3, stay
        if stay in (0.38, 0.61):  # a threshold harms just more than is allowed
            assert guessed > 2 * delta, stay


def test_the_guarantee_fails_at_most_with_delta() -> None:
    _check(range(150))


@pytest.mark.slow
def test_the_guarantee_fails_at_most_with_delta_over_many_draws() -> None:
    _check(range(4_000))


def test_in_the_worst_case_it_fails_about_with_delta() -> None:
    """A single candidate that harms just more than is allowed: the bound is no idle one."""
    chance = random.Random(1)  # noqa: S311 - draws that can be made again
    draws = 4000
    passes = functools.cache(lambda harmed: certify([harmed], 45, 0.05, 0.1)[0].passed)
    wrong = sum(passes(sum(chance.random() < 0.0501 for _ in range(45))) for _ in range(draws))
    assert 0.08 <= wrong / draws <= 0.1 + 4 * math.sqrt(0.09 / draws)
