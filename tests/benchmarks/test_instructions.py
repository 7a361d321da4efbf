"""Instructions per check and record, compared with the floor."""

from __future__ import annotations

import pytest

from benchmarks.instructions import CHAINED, LINES, OURS, CannotCountError, count, max_ratios


@pytest.mark.slow
@pytest.mark.parametrize("floor", ["floor", CHAINED, LINES])
def test_ratio_to_the_floor_stays_below_its_limit(floor: str) -> None:
    ratios: list[float] = []
    # What a journal's thread does each second counts more the longer the calls take.
    while len(ratios) < 3 and (not ratios or ratios[-1] >= max_ratios()[floor]):
        try:
            ratios.append(count((OURS[floor], floor)).ratio(floor))
        except CannotCountError as error:
            pytest.skip(str(error))
    assert 1 < ratios[-1] < max_ratios()[floor], ratios
