"""A search near a memory limit: regions against bans of calls and classes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GUARDS = ("none", "exact", "classes", "regions")


def _measured() -> str:
    command = [sys.executable, "-m", "benchmarks.search_boundary", "--format", "json"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def output() -> str:
    return _measured()


@pytest.fixture(scope="module")
def runs(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)
    return found


def _by_experiment(runs: list[dict[str, Any]], field: str) -> dict[str, dict[int, int]]:
    sums: dict[str, Counter[int]] = defaultdict(Counter)
    for run in runs:
        sums[run["guard"]][run["experiment"]] += run[field]
    return {guard: dict(sums[guard]) for guard in GUARDS}


@pytest.mark.slow
def test_it_is_deterministic(output: str) -> None:
    assert _measured() == output


def test_each_experiment_is_five_runs_of_25_trials(runs: list[dict[str, Any]]) -> None:
    for guard in GUARDS:
        for experiment in range(1, 21):
            mine = [one for one in runs if (one["guard"], one["experiment"]) == (guard, experiment)]
            assert [one["run"] for one in mine] == [1, 2, 3, 4, 5]
            assert {one["trials"] for one in mine} == {25}
            assert all(one["ok"] + one["oom"] + one["blocked"] == 25 for one in mine)


def test_without_a_guard_each_run_rediscovers_the_limit(runs: list[dict[str, Any]]) -> None:
    """As in the paper: at least two failures at the start of a run."""
    alone = [run for run in runs if run["guard"] == "none"]
    assert all(run["oom"] >= 1 for run in alone)
    assert sum(run["oom"] >= 2 for run in alone) >= 0.9 * len(alone)
    later = [run for run in alone if run["run"] > 1]
    assert sum(run["known"] > 0 for run in later) >= 0.9 * len(later)


def test_with_regions_no_known_failure_is_repeated(runs: list[dict[str, Any]]) -> None:
    assert set(_by_experiment(runs, "known")["regions"].values()) == {0}
    for other in ("none", "exact"):
        later = [run for run in runs if run["guard"] == other and run["run"] > 1]
        assert sum(run["known"] for run in later) > 0, "or there is nothing to be better at"


def test_with_regions_no_good_configuration_is_lost(runs: list[dict[str, Any]]) -> None:
    lost = _by_experiment(runs, "lost")
    assert set(lost["regions"].values()) == {0}
    assert all(count > 0 for count in lost["classes"].values())


def test_regions_waste_fewer_trials(
    runs: list[dict[str, Any]],
) -> None:
    wasted = _by_experiment(runs, "wasted")
    for experiment, count in wasted["regions"].items():
        assert count < wasted["exact"][experiment]
        assert count < wasted["classes"][experiment]
        assert count < wasted["none"][experiment]


def test_later_runs_profit_from_the_first(runs: list[dict[str, Any]]) -> None:
    ours = [run for run in runs if run["guard"] == "regions"]
    first = sum(run["oom"] for run in ours if run["run"] == 1)
    last = sum(run["oom"] for run in ours if run["run"] == 5)
    assert last < first / 2
