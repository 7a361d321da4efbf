"""The instructions of a check and a record stay within their ratio to the floor."""

from __future__ import annotations

import pytest

from benchmarks.instructions import CannotCountError, Counted, bounds, count


@pytest.fixture(scope="module")
def counted() -> Counted:
    try:
        return count()
    except CannotCountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("floor", bounds())
def test_the_ratio_to_the_floor_stays_below_its_bound(counted: Counted, floor: str) -> None:
    assert 1 < counted.ratio(floor) < bounds()[floor], counted
