"""Conversion of recorded times into ns since 1970 (UTC); anything else becomes None."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policyguard.traces.parsing.json_shape import as_amount, as_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST_SECOND = 2**63 // 1_000_000_000


def from_iso(value: object) -> int | None:
    """Convert ISO 8601 text, precise to the microsecond; a time without a zone is UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        elapsed = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    # Some formats write year 1 for a missing time.
    return elapsed // _MICROSECOND * 1000 if elapsed >= timedelta() else None


def from_seconds(value: object) -> int | None:
    """Convert seconds since 1970, precise to the microsecond."""
    seconds = as_number(value)
    if seconds is None or not 0 <= seconds < _LATEST_SECOND:
        return None
    return round(seconds * 1_000_000) * 1000


def from_milliseconds(value: object) -> int | None:
    """Convert milliseconds since 1970, precise to the microsecond."""
    milliseconds = as_amount(value)
    return None if milliseconds is None else from_seconds(milliseconds / 1000)
