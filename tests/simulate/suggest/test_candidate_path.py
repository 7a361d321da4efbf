"""The path of candidates, from the sessions that each option refuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policyguard.simulate.suggest.candidate_path import ExploredSpace, build_path

BITS = 12


@st.composite
def explorations(draw: st.DrawFn) -> ExploredSpace:
    masks = st.lists(st.integers(0, 2**BITS - 1), min_size=1, max_size=5)
    good = draw(st.integers(0, 2**BITS - 1))
    return ExploredSpace(
        masks=draw(st.lists(masks, max_size=4)),
        refused_elsewhere=draw(st.integers(0, 3)),
        succeeded=good,
        failed=2**BITS - 1 - good,
    )


@given(explorations(), st.integers(0, 5))
def test_candidates_harm_at_most_what_is_accepted_or_the_minimum(
    explored: ExploredSpace, most: int
) -> None:
    found = build_path(explored, most)
    harms = [explored.harm(explored.refused(one)) for one in found]
    assert found
    assert max(harms) <= most or len(found) == 1


@given(explorations(), st.integers(0, 5))
def test_candidates_go_from_the_most_cautious_to_the_most_aggressive(
    explored: ExploredSpace, most: int
) -> None:
    found = build_path(explored, most)
    assert len(set(found)) == len(found)
    base = (0,) * len(explored.masks)
    if base in found:
        bolder = [explored.catch(explored.refused(one)) for one in found[found.index(base) :]]
        assert bolder == sorted(set(bolder))


@given(explorations(), st.integers(0, 5))
def test_the_current_policy_is_a_candidate_if_it_harms_few_enough(
    explored: ExploredSpace, most: int
) -> None:
    base = (0,) * len(explored.masks)
    allowed = explored.harm(explored.refused(base)) <= most
    masks = {explored.refused(one) for one in build_path(explored, most)}
    assert not allowed or explored.refused(base) in masks


def test_small_steps_come_first_and_those_close_to_harm_last() -> None:
    """Axis 0 catches two in two safe steps; one step beyond axis 1's lies harm."""
    explored = ExploredSpace(
        masks=[[0, 0b0001, 0b0011, 0b0111], [0, 0b1000, 0b11000]],
        refused_elsewhere=0,
        succeeded=0b10000,
        failed=0b01111,
    )
    assert build_path(explored, 0) == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]


def test_a_policy_that_harms_is_loosened_until_it_does_not() -> None:
    explored = ExploredSpace(
        masks=[[0b111, 0b011, 0b001]], refused_elsewhere=0, succeeded=0b110, failed=0b001
    )
    assert build_path(explored, 0) == [(2,)]
    assert build_path(explored, 1) == [(2,), (1,)]


def test_without_a_harmless_setting_the_least_harmful_is_the_only_candidate() -> None:
    explored = ExploredSpace(masks=[[0b1, 0b1]], refused_elsewhere=0b1, succeeded=0b1, failed=0b10)
    assert build_path(explored, 0) == [(0,)]
