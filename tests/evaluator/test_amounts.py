"""What others report becomes an integer, or is seen to be none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.model.amounts import MAX_AMOUNT, format_number, to_nanoseconds, to_units

LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, 0), (3, 3 * 10**9), (0.1, 10**8), (1e-10, 0), (MAX_AMOUNT, MAX_AMOUNT * 10**9)],
)
def test_amounts_are_counted_in_billionths(amount: float, expected: int) -> None:
    assert to_units(amount) == expected


@pytest.mark.parametrize(
    "amount",
    [-1, -1e-9, math.nan, math.inf, -math.inf, 1e308, 10**400, MAX_AMOUNT + 1, True, "5", None, []],
)
def test_what_is_no_finite_number_of_at_least_0_is_no_amount(amount: Any) -> None:
    assert to_units(amount) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, 0),
        (0, 0),
        (-5, 0),
        (math.nan, 0),
        (-math.inf, 0),
        (1.5, 1_500_000_000),
        (LONGEST / 10**9, LONGEST),
        (1e300, LONGEST),
        (10**400, LONGEST),
        (math.inf, LONGEST),
    ],
)
def test_a_span_is_never_more_than_can_be_told(seconds: float | None, expected: int) -> None:
    assert to_nanoseconds(seconds) == expected


@given(st.floats() | st.integers())
def test_nothing_raises_and_nothing_is_beyond_its_bounds(value: float) -> None:
    assert 0 <= to_nanoseconds(value) <= LONGEST
    found = to_units(value)
    assert found is None or 0 <= found <= MAX_AMOUNT * 10**9


@given(st.integers(0, 10**14))
def test_a_figure_has_all_its_digits(cents: int) -> None:
    assert float(format_number(cents / 100)) == cents / 100
    assert format_number(float(cents)) == str(cents)


def test_a_figure_has_no_digits_that_nobody_meant() -> None:
    assert [format_number(n) for n in (0.1 + 0.2, 5e-05, 1e17, 0.0)] == [
        "0.3",
        "0.00005",
        f"{10**17}",
        "0",
    ]
    assert [format_number(n) for n in (1e300, -1e-300)] == ["1e+300", "-1e-300"]
