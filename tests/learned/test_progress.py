"""Progress: the status that scores and bans lead to, compared with a simple model."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.learned.progress import SearchProgress
from policyguard.model.policy import Progress


def progress_settings(**changes: Any) -> Progress:
    values = {
        "plateau_after": 3,
        "min_delta": 0.5,
        "direction": "minimize",
        "space": 4,
        "exhausted_after": 2,
        "constrained_below": 0.5,
    }
    return Progress(**{**values, **changes})


def status_after_scores(settings: Progress, *scores: float | None) -> str:
    progress = SearchProgress.begin(settings)
    for score in scores:
        progress.add_score(settings, score)
    return progress.status(settings)


@pytest.mark.parametrize(
    ("direction", "scores", "expected"),
    [
        ("minimize", [3, 3, 3], "progressing"),
        ("minimize", [3, 3, 3, 3], "plateau"),
        ("minimize", [3, 3, 3, 2.5], "plateau"),  # not above min_delta
        ("minimize", [3, 3, 3, 2.4], "progressing"),
        ("minimize", [3, 3, 3, 3, 2.4], "progressing"),
        ("minimize", [3, 2.7, 2.4, 2.3, 2.2], "progressing"),  # small improvements add up
        ("minimize", [3, 2, 2, 2, 2], "plateau"),  # compared with the latest improvement
        ("maximize", [3, 4, 4, 4, 4], "plateau"),
        ("minimize", [3, 4, 5, 6], "plateau"),
        ("maximize", [3, 4, 5, 6], "progressing"),
        ("maximize", [6, 5, 4, 3], "plateau"),
        ("minimize", [None] * 9, "progressing"),
        ("minimize", [3, None, None, None, 3, 3], "progressing"),
        ("minimize", [-sys.float_info.max, 3, 2, 1], "plateau"),
        ("maximize", [sys.float_info.max, 1, 2, 3], "plateau"),
        ("minimize", [float("nan"), 3, 2, 1], "progressing"),
        ("minimize", [float("-inf"), 3, 2, 1], "progressing"),
        ("minimize", [3, float("nan"), float("nan"), float("nan")], "progressing"),
    ],
)
def test_status_from_scores(direction: str, scores: list[float | None], expected: str) -> None:
    assert status_after_scores(progress_settings(direction=direction), *scores) == expected


@given(st.lists(st.sampled_from([None, *range(9)])), st.sampled_from(["minimize", "maximize"]))
def test_plateau_means_no_improvement_in_the_latest_scores(
    scores: list[int | None], direction: str
) -> None:
    settings = progress_settings(direction=direction, min_delta=0)
    comparable = [
        score if direction == "maximize" else -score for score in scores if score is not None
    ]
    latest = comparable[-3:]
    earlier = comparable[:-3]
    is_plateau = bool(earlier) and max(latest) <= max(earlier)
    assert status_after_scores(settings, *scores) == ("plateau" if is_plateau else "progressing")


VISITS = st.tuples(st.sampled_from("abcdefg"), st.booleans())


@given(st.lists(st.one_of(VISITS, VISITS, VISITS, st.none()), max_size=30))
def test_search_space_holds_the_latest_candidates(steps: list[tuple[str, bool] | None]) -> None:
    settings = progress_settings()
    progress = SearchProgress.begin(settings)
    model: list[tuple[str, bool]] = []
    for step in steps:
        if step is None:
            progress.clear_bans()
            model = [(candidate, False) for candidate, _ in model]
        else:
            progress.visit(step[0], banned=step[1])
            model = [*(visit for visit in model if visit[0] != step[0]), step][-4:]
        allowed = sum(not banned for _, banned in model)
        expected = "progressing"
        if len(model) >= 2 and allowed < len(model) / 2:
            expected = "constrained_out" if allowed else "exhausted"
        assert progress.status(settings) == expected


def test_bans_outside_the_search_space_do_not_count() -> None:
    settings = progress_settings()
    progress = SearchProgress.begin(settings)
    for number, candidate in enumerate("abcdefgh"):
        progress.visit(candidate, banned=number < 4)
    assert progress.status(settings) == "progressing"
    assert (list(progress.visited), progress.banned) == (["e", "f", "g", "h"], {})


def test_repeated_visits_count_once_when_a_candidate_is_banned() -> None:
    settings = progress_settings()
    progress = SearchProgress.begin(settings)
    progress.visited.extend("abbb")
    progress.visit("c", banned=True)
    assert progress.status(settings) == "progressing"
    progress.visit("b", banned=True)
    assert list(progress.visited) == ["c", "b"]
    assert progress.status(settings) == "exhausted"


def test_search_space_takes_precedence_over_scores() -> None:
    settings = progress_settings()
    progress = SearchProgress.begin(settings)
    for _ in range(4):
        progress.add_score(settings, 1.0)
    assert progress.status(settings) == "plateau"
    progress.visit("a", banned=True)
    assert progress.status(settings) == "plateau"  # one candidate is too few
    progress.visit("b", banned=True)
    assert progress.status(settings) == "exhausted"
