"""The long-horizon benchmark: every published figure, and what core and strict promise.

The figures of the paper are `none` and `narrowing`. What a ban of the exact call after two failures
does (`core`, where nothing changes) was published with them, and so were the means.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.long_horizon", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _of(
    runs: list[dict[str, Any]], guard: str, seed: int, window: int, calls: int
) -> dict[str, Any]:
    wanted = {"guard": guard, "seed": seed, "window": window, "calls": calls}
    found = [run for run in runs if wanted.items() <= run.items()]
    assert found
    assert all(run == found[0] for run in found), "the same run twice, with different figures"
    return found[0]


FIELDS = ("ok", "failed", "repeats", "blocked", "false_blocks", "cost")
PUBLISHED = [
    ("none", 10, (94, 106, 90, 0, 0, 0.318)),
    ("none", 20, (101, 99, 82, 0, 0, 0.297)),
    ("none", 50, (113, 87, 71, 0, 0, 0.261)),
    ("narrowing", 10, (49, 8, 3, 143, 43, 0.067)),
    ("narrowing", 20, (55, 10, 2, 135, 40, 0.071)),
    ("narrowing", 50, (75, 10, 2, 115, 36, 0.065)),
    ("core", 10, (92, 51, 35, 57, 0, 0.170)),
    ("core", 20, (95, 52, 35, 53, 0, 0.172)),
    ("core", 50, (115, 57, 40, 28, 0, 0.179)),
]


@pytest.mark.parametrize(("guard", "window", "figures"), PUBLISHED)
def test_seed_42(
    runs: list[dict[str, Any]], guard: str, window: int, figures: tuple[float, ...]
) -> None:
    run = _of(runs, guard, 42, window, 200)
    assert tuple(run[field] for field in FIELDS) == figures
    assert run["ok"] + run["failed"] + run["blocked"] == 200


@pytest.mark.parametrize(
    ("calls", "none", "narrowing"), [(50, 10, 1), (100, 34, 2), (150, 58, 2), (200, 82, 2)]
)
def test_longer_horizons(runs: list[dict[str, Any]], calls: int, none: int, narrowing: int) -> None:
    assert _of(runs, "none", 42, 20, calls)["repeats"] == none
    assert _of(runs, "narrowing", 42, 20, calls)["repeats"] == narrowing


# ok and repeats without a guard; ok, repeats, blocked and false blocks with narrowing.
STABLE = {
    1: ((86, 97), (45, 1, 147, 36)),
    2: ((89, 94), (38, 2, 153, 49)),
    3: ((100, 84), (48, 2, 142, 51)),
    4: ((88, 95), (45, 2, 145, 32)),
    5: ((92, 92), (39, 2, 152, 46)),
}


@pytest.mark.parametrize("seed", STABLE)
def test_other_seeds(runs: list[dict[str, Any]], seed: int) -> None:
    none, narrowing = _of(runs, "none", seed, 20, 200), _of(runs, "narrowing", seed, 20, 200)
    assert ((none["ok"], none["repeats"]), _blocks(narrowing)) == STABLE[seed]


def _blocks(run: dict[str, Any]) -> tuple[int, ...]:
    return run["ok"], run["repeats"], run["blocked"], run["false_blocks"]


def _mean(runs: list[dict[str, Any]], guard: str, field: str) -> float:
    return float(sum(_of(runs, guard, seed, 20, 200)[field] for seed in range(1, 201)) / 200)


def test_means_over_200_seeds(runs: list[dict[str, Any]]) -> None:
    assert _mean(runs, "narrowing", "false_blocks") == pytest.approx(40.8, abs=0.05)
    assert _mean(runs, "narrowing", "blocked") == pytest.approx(144.48)
    assert _mean(runs, "core", "repeats") == pytest.approx(39.6, abs=0.05)
    assert _mean(runs, "core", "repeats") <= 40
    assert _mean(runs, "strict", "repeats") <= 9


def test_core_and_strict_have_no_false_blocks(
    runs: list[dict[str, Any]],
) -> None:
    ours = [run for run in runs if run["guard"] in ("core", "strict")]
    assert len(ours) == 2 * (3 + 3 + 200)
    assert [run for run in ours if run["false_blocks"]] == []


def test_only_constraints_refuse(runs: list[dict[str, Any]]) -> None:
    assert {run["blocked_by_limits"] for run in runs} == {0}
