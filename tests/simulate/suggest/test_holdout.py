"""The random split of runs into exploration and held-out ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policyguard.simulate.suggest.certification import split_runs

NAMES = st.lists(st.text(max_size=5), max_size=80)


@given(NAMES, st.integers(0, 9), st.integers(0, 100))
def test_every_run_is_in_one_part(names: list[str], seed: int, enough: int) -> None:
    explored, held = split_runs(names, seed, enough)
    assert sorted([*explored, *held]) == list(range(len(names)))
    assert len(held) >= len(explored)
    assert len(explored) >= len(names) // 4
    assert (explored, held) == split_runs(names, seed, enough)


def test_as_many_runs_are_held_out_as_a_guarantee_needs_if_possible() -> None:
    names = [f"s{number}" for number in range(60)]
    assert [len(split_runs(names, 0, enough)[1]) for enough in (10, 30, 45, 46)] == [30, 30, 45, 30]


def test_the_split_is_random() -> None:
    names = [f"s{number}" for number in range(200)]
    held = split_runs(names, 0, 0)[1]
    assert 30 < len(held & set(range(100))) < 70
    assert held != split_runs(names, 1, 0)[1]
    # A run that joins leaves the others where they are, but for the one at the edge.
    assert len(held - split_runs([*names, "new"], 0, 0)[1]) <= 1
