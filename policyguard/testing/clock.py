"""Times as tests write them. Integers are nanoseconds, since 1970 in UTC for instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policyguard.compiler.load import scalars

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT_START = 1_772_798_400 * 10**9
"""When a test begins that does not say: Friday, 6 March 2026, 12:00 UTC. A working day at noon, so
that rules about times of day are open rather than closed."""


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self, at: str | None) -> None:
        given = None if at is None else parse_instant(at)
        self.now = DEFAULT_START if given is None else given

    def __call__(self) -> int:
        """What time it is."""
        return self.now


def parse_instant(text: str) -> int | None:
    """An RFC 3339 time, whose form the schema has checked; None where there is no such day."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        return None


def parse_nanoseconds(text: str) -> int:
    """A duration, whose form the schema has checked."""
    found = scalars.parse_duration(text)
    assert found is not None  # noqa: S101 - the schema's pattern is the same
    return found


def parse_seconds(value: float | str | None) -> float | None:
    """A duration as text, or a number of seconds."""
    return parse_nanoseconds(value) / 1e9 if isinstance(value, str) else value
