"""Amounts and times that others have reported, as integers: they add up exactly.

What a host, a tool or a recorded run says may be no number, infinite or beyond all measure.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

SCALE = 1_000_000_000
"""Amounts are counted in units of 1e-9 of the budget's own unit."""
MAX_AMOUNT = 10**18
"""Of an amount that anybody has used: more tokens than there are."""
_MAX_NANOSECONDS = 2**63 - 1
"""Nanoseconds, 292 years: as long as a duration of CEL can be."""


def is_whole(value: float) -> bool:
    """Whether a number is whole and of 64 bits, however it is written: 5.0 is, 1e308 is not."""
    return value.is_integer() and abs(value) < 2**63


def format_number(value: float) -> str:
    """A number as a person would write it, of up to 15 digits: `12345.67`, `5`, `0.00006`."""
    written = f"{value:.15g}"
    usual = 1 / SCALE <= abs(value) < MAX_AMOUNT
    return format(Decimal(written), "f") if usual else written


def to_units(amount: Any) -> int | None:
    """An amount in units of 1e-9; None where it is no finite number of at least 0."""
    if amount.__class__ is bool or not isinstance(amount, (int, float)):
        return None
    return round(amount * SCALE) if 0 <= amount <= MAX_AMOUNT else None  # NaN is not


def to_nanoseconds(seconds: float | None) -> int:
    """A span of time in ns: at most 292 years; 0 where none was given, or what is no span."""
    if seconds is None or not seconds > 0:
        return 0
    return round(seconds * SCALE) if seconds < _MAX_NANOSECONDS / SCALE else _MAX_NANOSECONDS
