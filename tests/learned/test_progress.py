"""Progress: what a session's scores and bans amount to, against a model that looks at all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.learned.progress import SearchProgress
from policyguard.model.policy import Progress


def aim(**given: Any) -> Progress:
    values = {
        "plateau_after": 3,
        "min_delta": 0.5,
        "direction": "minimize",
        "space": 4,
        "exhausted_after": 2,
        "constrained_below": 0.5,
    }
    return Progress(**{**values, **given})


def scored(goal: Progress, *scores: float | None) -> str:
    course = SearchProgress()
    for score in scores:
        course.add_score(goal, score)
    return course.status(goal)


@pytest.mark.parametrize(
    ("direction", "scores", "expected"),
    [
        ("minimize", [3, 3, 3], "progressing"),
        ("minimize", [3, 3, 3, 3], "plateau"),
        ("minimize", [3, 3, 3, 2.5], "plateau"),  # not above min_delta
        ("minimize", [3, 3, 3, 2.4], "progressing"),
        ("minimize", [3, 3, 3, 3, 2.4], "progressing"),
        ("minimize", [3, 2.7, 2.4, 2.3, 2.2], "progressing"),  # what is small adds up
        ("minimize", [3, 4, 5, 6], "plateau"),
        ("maximize", [3, 4, 5, 6], "progressing"),
        ("maximize", [6, 5, 4, 3], "plateau"),
        ("minimize", [None] * 9, "progressing"),
        ("minimize", [3, None, None, None, 3, 3], "progressing"),
        ("minimize", [float("nan"), 3, 2, 1], "progressing"),
        ("minimize", [float("-inf"), 3, 2, 1], "progressing"),
        ("minimize", [3, float("nan"), float("nan"), float("nan")], "progressing"),
    ],
)
def test_scores(direction: str, scores: list[float | None], expected: str) -> None:
    assert scored(aim(direction=direction), *scores) == expected


@given(st.lists(st.sampled_from([None, *range(9)])), st.sampled_from(["minimize", "maximize"]))
def test_a_plateau_is_no_better_score_for_long(scores: list[int | None], direction: str) -> None:
    goal = aim(direction=direction, min_delta=0)
    known = [score if direction == "maximize" else -score for score in scores if score is not None]
    lately = known[-3:]
    before = known[:-3]
    flat = bool(before) and max(lately) <= max(before)
    assert scored(goal, *scores) == ("plateau" if flat else "progressing")


WAYS = st.tuples(st.sampled_from("abcdefg"), st.booleans())


@given(st.lists(st.one_of(WAYS, WAYS, WAYS, st.none()), max_size=30))
def test_the_search_space_is_the_latest_ways(steps: list[tuple[str, bool] | None]) -> None:
    goal = aim()
    course = SearchProgress()
    model: list[tuple[str, bool]] = []
    for step in steps:
        if step is None:
            course.clear_bans()
            model = [(way, False) for way, _ in model]
        else:
            course.visit(goal, step[0], banned=step[1])
            model = [*(known for known in model if known[0] != step[0]), step][-4:]
        free = sum(not banned for _, banned in model)
        expected = "progressing"
        if len(model) >= 2 and free < len(model) / 2:
            expected = "constrained_out" if free else "exhausted"
        assert course.status(goal) == expected


def test_a_ban_that_is_too_long_ago_does_not_count() -> None:
    goal = aim()
    course = SearchProgress()
    for number, way in enumerate("abcdefgh"):
        course.visit(goal, way, banned=number < 4)
    assert course.status(goal) == "progressing"
    assert (list(course.visited), course.banned) == (["e", "f", "g", "h"], {})


def test_while_nothing_is_banned_a_way_counts_as_often_as_it_is_met() -> None:
    goal = aim()
    course = SearchProgress()
    course.visited.extend("abbb")
    course.visit(goal, "c", banned=True)
    assert course.status(goal) == "progressing"
    course.visit(goal, "b", banned=True)
    assert list(course.visited) == ["c", "b"]
    assert course.status(goal) == "exhausted"


def test_what_is_left_to_try_matters_before_what_was_reached() -> None:
    goal = aim()
    course = SearchProgress()
    for _ in range(4):
        course.add_score(goal, 1.0)
    assert course.status(goal) == "plateau"
    course.visit(goal, "a", banned=True)
    assert course.status(goal) == "plateau"  # one way is no search space yet
    course.visit(goal, "b", banned=True)
    assert course.status(goal) == "exhausted"
