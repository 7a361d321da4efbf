"""The clock of a test, and its times. Integers are nanoseconds, for instants since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policyguard.compiler.load import scalars

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT_START = 1_772_798_400 * 10**9
"""The default start of a test: Friday, 6 March 2026, 12:00 UTC, within usual working hours."""


class Clock:
    """A clock that a test sets."""

    def __init__(self, at: str | None) -> None:
        start = None if at is None else parse_instant(at)
        self.now = DEFAULT_START if start is None else start

    def __call__(self) -> int:
        """Return the current time."""
        return self.now


def parse_instant(text: str) -> int | None:
    """Parse an RFC 3339 time that fits the schema; None if there is no such day."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        return None


def parse_nanoseconds(text: str) -> int:
    """Parse a duration that fits the schema."""
    found = scalars.parse_duration(text)
    assert found is not None  # noqa: S101 - the schema's pattern is the same
    return found


def parse_seconds(value: float | str | None) -> float | None:
    """Convert a duration, as text or a number of seconds, to seconds."""
    return parse_nanoseconds(value) / 1e9 if isinstance(value, str) else value
