"""Instructions per check and record, compared with the floor."""

from __future__ import annotations

import pytest

from benchmarks.instructions import CannotCountError, InstructionCounts, count, max_ratios


@pytest.fixture(scope="module")
def counts() -> InstructionCounts:
    try:
        return count()
    except CannotCountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("floor", max_ratios())
def test_ratio_to_the_floor_stays_below_its_limit(counts: InstructionCounts, floor: str) -> None:
    assert 1 < counts.ratio(floor) < max_ratios()[floor], counts
