"""Which calls a region of failing parameters covers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.learned.parameter_region import count_dominated, dominates, drop_refuted
from policyguard.model.constraint import Direction

DIRECTIONS: list[Direction] = ["up", "down", "exact"]
values = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b"]), st.booleans(), st.none())
points = st.dictionaries(st.sampled_from("xy"), values, min_size=1)


@pytest.mark.parametrize(
    ("direction", "covered"),
    [("up", {2, 3, 2.5}), ("down", {1, 2, 1.5}), ("exact", {2})],
)
def test_numbers_are_covered_in_one_direction(direction: Direction, covered: set[float]) -> None:
    found = {n for n in (1, 1.5, 2, 2.5, 3) if dominates({"n": n}, {"n": 2}, direction)}
    assert found == covered


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("failed", "other"),
    [
        ("sgd", "adam"),
        (True, False),
        (True, 1),
        (1, True),
        (3, "x"),
        ("x", 3),
        (None, "x"),
        ([1], [2]),
    ],
)
def test_other_values_are_covered_only_where_they_are_equal(
    direction: Direction, failed: Any, other: Any
) -> None:
    assert dominates({"v": failed}, {"v": failed}, direction)
    assert not dominates({"v": other}, {"v": failed}, direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_calls_with_other_parameters_are_not_covered(direction: Direction) -> None:
    failed = {"x": 1, "y": "a"}
    assert dominates(failed, failed, direction)
    assert not dominates({"x": 1}, failed, direction)
    assert not dominates({**failed, "z": 1}, failed, direction)
    assert not dominates({"x": 1, "y": "b"}, failed, direction)


@given(st.lists(points, max_size=5), points, st.sampled_from(DIRECTIONS))
def test_a_success_refutes_what_it_is_covered_by(
    failing: list[dict[str, Any]], good: dict[str, Any], direction: Direction
) -> None:
    kept = drop_refuted(failing, good, direction)
    assert count_dominated(good, kept, direction) == 0
    assert len(kept) + count_dominated(good, failing, direction) == len(failing)
