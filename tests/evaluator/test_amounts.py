"""Conversion of reported amounts and durations to integers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.model.amounts import MAX_AMOUNT, format_number, to_nanoseconds, to_units

MAX_NANOSECONDS = 2**63 - 1


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, 0), (3, 3 * 10**9), (0.1, 10**8), (1e-10, 0), (MAX_AMOUNT, MAX_AMOUNT * 10**9)],
)
def test_amounts_become_billionths(amount: float, expected: int) -> None:
    assert to_units(amount) == expected


@pytest.mark.parametrize(
    "amount",
    [-1, -1e-9, math.nan, math.inf, -math.inf, 1e308, 10**400, MAX_AMOUNT + 1, True, "5", None, []],
)
def test_invalid_amounts_are_rejected(amount: Any) -> None:
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
        (MAX_NANOSECONDS / 10**9, MAX_NANOSECONDS),
        (1e300, MAX_NANOSECONDS),
        (10**400, MAX_NANOSECONDS),
        (math.inf, MAX_NANOSECONDS),
    ],
)
def test_seconds_become_clamped_nanoseconds(seconds: float | None, expected: int) -> None:
    assert to_nanoseconds(seconds) == expected


@given(st.floats() | st.integers())
def test_conversions_never_raise_and_stay_in_bounds(value: float) -> None:
    assert 0 <= to_nanoseconds(value) <= MAX_NANOSECONDS
    units = to_units(value)
    assert units is None or 0 <= units <= MAX_AMOUNT * 10**9


@given(st.integers(0, 10**14))
def test_formatted_number_keeps_all_digits(cents: int) -> None:
    assert float(format_number(cents / 100)) == cents / 100
    assert format_number(float(cents)) == str(cents)


def test_formatted_number_has_no_rounding_noise() -> None:
    assert [format_number(n) for n in (0.1 + 0.2, 5e-05, 1e17, 0.0)] == [
        "0.3",
        "0.00005",
        f"{10**17}",
        "0",
    ]
    assert [format_number(n) for n in (1e300, -1e-300)] == ["1e+300", "-1e-300"]
