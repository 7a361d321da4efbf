"""Instructions per check and record, compared with the floor."""

from __future__ import annotations

import pytest

from benchmarks.instructions import CHAINED, LINES, OURS, CannotCountError, count, max_ratios


@pytest.mark.slow
@pytest.mark.parametrize("floor", ["floor", CHAINED, LINES])
def test_ratio_to_the_floor_stays_below_its_limit(floor: str) -> None:
    try:
        counts = count((OURS[floor], floor))
    except CannotCountError as error:
        pytest.skip(str(error))
    assert 1 < counts.ratio(floor) < max_ratios()[floor], counts
