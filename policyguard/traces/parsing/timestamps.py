"""Recorded times → nanoseconds since 1970 in UTC. What is no time becomes None, never a guess."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policyguard.traces.parsing.json_shape import as_amount, as_number

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST_SECOND = 2**63 // 1_000_000_000


def from_iso(value: object) -> int | None:
    """From ISO 8601 text, precise to the microsecond; a time without a zone is taken as UTC."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    # Year 1 is how some write that they have no time.
    return since // _MICROSECOND * 1000 if since >= timedelta() else None


def from_seconds(value: object) -> int | None:
    """From seconds since 1970, precise to the microsecond."""
    seconds = as_number(value)
    if seconds is None or not 0 <= seconds < _LATEST_SECOND:
        return None
    return round(seconds * 1_000_000) * 1000


def from_milliseconds(value: object) -> int | None:
    """From milliseconds since 1970, precise to the microsecond."""
    milliseconds = as_amount(value)
    return None if milliseconds is None else from_seconds(milliseconds / 1000)
