"""Parse durations, counts and references: `60s`, `500k`, `$name`."""

from __future__ import annotations

import re
from typing import Literal

from policyguard.model.amounts import is_whole
from policyguard.model.policy import Value

_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_COUNT = re.compile(r"([0-9]{1,12})([kM])")
_REFERENCE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NANOSECONDS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_MULTIPLIERS = {"k": 1000, "M": 1_000_000}

ScalarKind = Literal["boolean", "number", "duration", "text"]


def parse_duration(text: str) -> int | None:
    """Return a duration in nanoseconds, or None if `text` is not a duration."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _NANOSECONDS[found[2]] if found else None


def parse_count(text: str) -> int | None:
    """Return the value of `500k` or `2M`, or None if `text` is not a count."""
    found = _COUNT.fullmatch(text)
    return int(found[1]) * _MULTIPLIERS[found[2]] if found else None


def parse_reference(value: object) -> str | None:
    """Return the name in `$name`, or None if `value` is not a reference."""
    found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else None


def normalize_number(value: Value) -> Value:
    """Return a number or count as a number, a whole one as int; any other value unchanged."""
    if isinstance(value, str):
        found = parse_count(value)
        return value if found is None else found
    if isinstance(value, float) and is_whole(value):
        return int(value)
    return value


def scalar_kind(value: Value) -> ScalarKind:
    """Return the language's type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float) or parse_count(value) is not None:
        return "number"
    return "text" if parse_duration(value) is None else "duration"
