"""Reported amounts and times as integers, which add up exactly. The reports are untrusted."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

SCALE = 1_000_000_000
"""Amounts are counted in units of 1e-9 of the budget's own unit."""
MAX_AMOUNT = 10**18
"""The largest amount that is accepted."""
_MAX_NANOSECONDS = 2**63 - 1
"""292 years, the longest duration of CEL."""


def is_whole(value: float) -> bool:
    """Whether a number is whole and fits 64 bits: 5.0 is, 1e308 is not."""
    return value.is_integer() and abs(value) < 2**63


def format_number(value: float) -> str:
    """Format a number for people, with up to 15 digits: `12345.67`, `5`, `0.00006`."""
    text = f"{value:.15g}"
    is_common = 1 / SCALE <= abs(value) < MAX_AMOUNT
    return format(Decimal(text), "f") if is_common else text


def format_duration(nanoseconds: int) -> str:
    """Format a duration for people: `45s`, `2m`, `1h30m`, `3d`."""
    total = nanoseconds / 1e9
    if total < 60:
        return f"{format_number(total)}s"
    parts = []
    rest = int(total)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def to_units(amount: Any) -> int | None:
    """Convert an amount to units of 1e-9; None unless it is from 0 to `MAX_AMOUNT`."""
    if amount.__class__ is bool or not isinstance(amount, (int, float)):
        return None
    return round(amount * SCALE) if 0 <= amount <= MAX_AMOUNT else None  # NaN is not


def to_nanoseconds(seconds: float | None) -> int:
    """Convert a duration, at most 292 years; 0 where it is missing or invalid."""
    if seconds is None or not seconds > 0:
        return 0
    return round(seconds * SCALE) if seconds < _MAX_NANOSECONDS / SCALE else _MAX_NANOSECONDS
