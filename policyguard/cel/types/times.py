"""Timestamps and durations, exact to the nanosecond.

Both are an integer of nanoseconds. A timestamp lies in the years 1 to 9999 (cel-spec langdef.md,
"Timestamps"); a duration fits into a 64-bit integer, about ±292 years, the range that the
specification's tests of `timestamp - timestamp` need.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Self

from policyguard.cel.errors import OperationError, quote_short
from policyguard.cel.types.uint import INT_MAX, INT_MIN
from policyguard.engines.lazy_pattern import lazy_pattern

NS_PER_SECOND: Final = 1_000_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_SECOND: Final = -62_135_596_800
_MAX_SECOND: Final = 253_402_300_799
_MIN_NS: Final = _MIN_SECOND * NS_PER_SECOND
_MAX_NS: Final = _MAX_SECOND * NS_PER_SECOND + NS_PER_SECOND - 1


class _Nanoseconds:
    """The base of timestamps and durations. Immutable by convention."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns: Final = ns

    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__ and self.ns == other.ns

    def __hash__(self) -> int:
        return hash((self.__class__, self.ns))

    def __lt__(self, other: Self) -> bool:
        return self.ns < other.ns

    def __le__(self, other: Self) -> bool:
        return self.ns <= other.ns

    def __gt__(self, other: Self) -> bool:
        return self.ns > other.ns

    def __ge__(self, other: Self) -> bool:
        return self.ns >= other.ns

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class Timestamp(_Nanoseconds):
    """A point in time: nanoseconds since 1970-01-01T00:00:00Z."""

    __slots__ = ()

    @classmethod
    def from_ns(cls, ns: int) -> Timestamp:
        """Return the time `ns` nanoseconds after 1970; raise outside the years 1 to 9999."""
        if _MIN_NS <= ns <= _MAX_NS:
            return cls(ns)
        raise OperationError("overflow", "a timestamp is outside the years 1 to 9999")

    def __str__(self) -> str:
        """Format as RFC 3339 in UTC, with as many fractional digits as needed."""
        seconds, fraction = divmod(self.ns, NS_PER_SECOND)
        moment = EPOCH + timedelta(seconds=seconds)
        text = moment.replace(tzinfo=None).isoformat()
        return f"{text}{_format_fraction(fraction)}Z"


class Duration(_Nanoseconds):
    """A length of time in nanoseconds; may be negative."""

    __slots__ = ()

    @classmethod
    def from_ns(cls, ns: int) -> Duration:
        """Return a duration of `ns` nanoseconds; raise beyond a 64-bit integer."""
        if INT_MIN <= ns <= INT_MAX:
            return cls(ns)
        raise OperationError("overflow", "a duration is longer than 292 years")

    def __str__(self) -> str:
        """Format as seconds with as many digits as needed, and `s`."""
        seconds, fraction = divmod(abs(self.ns), NS_PER_SECOND)
        return f"{'-' if self.ns < 0 else ''}{seconds}{_format_fraction(fraction)}s"


def _format_fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""


_TIMESTAMP: Final = lazy_pattern(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DURATION_PART: Final = lazy_pattern(r"([0-9]*)(?:\.([0-9]*))?(h|ms|m|s|us|µs|μs|ns)")
_UNIT_NS: Final = {
    "h": 3600 * NS_PER_SECOND,
    "m": 60 * NS_PER_SECOND,
    "s": NS_PER_SECOND,
    "ms": 1_000_000,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ns": 1,
}
_MAX_DURATION_LENGTH: Final = 100


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 time such as `2026-01-31T09:30:00.5+01:00`."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _invalid(text, "timestamp")
    *civil, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime(*map(int, civil), tzinfo=UTC)  # type: ignore[misc,arg-type]  # six numbers
    except ValueError:
        raise _invalid(text, "timestamp") from None
    ns = (moment - EPOCH) // timedelta(seconds=1) * NS_PER_SECOND + int(
        (fraction or "").ljust(9, "0")
    )
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise _invalid(text, "timestamp")
        offset = (int(hours) * 3600 + int(minutes) * 60) * NS_PER_SECOND
        ns += offset if sign == "-" else -offset
    return Timestamp.from_ns(ns)


def timestamp_from_seconds(seconds: int) -> Timestamp:
    """Return the time `seconds` after 1970."""
    return Timestamp.from_ns(seconds * NS_PER_SECOND)


def parse_duration(text: str) -> Duration:
    """Parse numbers with the units h, m, s, ms, us, ns, such as `1h30m` or `1.5s`.

    cel-spec langdef.md, "Timestamps and durations"; the format of Go's `ParseDuration`.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Duration(0)
    if not rest or len(rest) > _MAX_DURATION_LENGTH:
        raise _invalid(text, "duration")
    ns = position = 0
    while position < len(rest):
        part = _DURATION_PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            raise _invalid(text, "duration")
        unit = _UNIT_NS[part[3]]
        digits = part[2] or ""
        ns += int(part[1] or "0") * unit + int(digits or "0") * unit // 10 ** len(digits)
        position = part.end()
    return Duration.from_ns(-ns if text[0] == "-" else ns)


def _invalid(text: str, target: str) -> OperationError:
    return OperationError("invalid-argument", f"{quote_short(text)} is not a {target}")
