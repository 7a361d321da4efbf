"""Time zones, and the parts of timestamps and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final

from policyguard.cel.errors import OperationError, quote_short
from policyguard.cel.types.times import EPOCH, NS_PER_SECOND, Duration, Timestamp
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.lazy_pattern import lazy_pattern

_OFFSET: Final = lazy_pattern(r"([+-]?)([0-9]{2}):([0-9]{2})")
# Months, days of the month and of the year count from 0 (`getDate` from 1), weekdays from Sunday.
_TIMESTAMP_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda time: time.year,
    "getMonth": lambda time: time.month - 1,
    "getDate": lambda time: time.day,
    "getDayOfMonth": lambda time: time.day - 1,
    "getDayOfWeek": lambda time: time.isoweekday() % 7,
    "getDayOfYear": lambda time: time.timetuple().tm_yday - 1,
    "getHours": lambda time: time.hour,
    "getMinutes": lambda time: time.minute,
    "getSeconds": lambda time: time.second,
}
_DURATION_UNITS: Final = {
    "getHours": 3600 * NS_PER_SECOND,
    "getMinutes": 60 * NS_PER_SECOND,
    "getSeconds": NS_PER_SECOND,
}


@lru_cache(maxsize=256)
def _load_zone(name: str) -> tzinfo:
    """Load an IANA zone, or a fixed offset such as `+02:00`."""
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset.groups()
        if int(hours) < 24 and int(minutes) < 60:
            shift = timedelta(hours=int(hours), minutes=int(minutes))
            return timezone(-shift if sign == "-" else shift)
    elif len(name) < 64 and name.isascii():
        from zoneinfo import ZoneInfo  # 3 ms, only for policies with zones

        # OSError: a name such as `America` is a directory of the database.
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise OperationError("invalid-argument", f"{quote_short(name)} is not a time zone")


def check_zone(name: str) -> None:
    """Raise `ValueError` if `name` is not a time zone."""
    try:
        _load_zone(name)
    except OperationError as error:
        raise ValueError(str(error)) from None


def parse_zone(name: Any) -> tzinfo:
    """Return the time zone called `name`."""
    if name.__class__ is not str:
        raise OperationError("no-such-overload", "a time zone must be a string")
    return _load_zone(name)


def local_time(moment: Timestamp, zone: tzinfo = UTC) -> datetime:
    """Return the calendar date and clock time of `moment`, to the second."""
    try:
        return (EPOCH + timedelta(seconds=moment.ns // NS_PER_SECOND)).astimezone(zone)
    except OverflowError:
        raise OperationError("overflow", "a local time is outside the years 1 to 9999") from None


def _make_getter(name: str) -> Callable[..., int]:
    part = _TIMESTAMP_PARTS[name]
    unit = _DURATION_UNITS.get(name, 0)

    def getter(value: Any, *zone: Any) -> int:
        if unit and value.__class__ is Duration and not zone:
            whole: int = abs(value.ns) // unit
            return whole if value.ns >= 0 else -whole
        if value.__class__ is not Timestamp:
            raise no_such_overload(name, value)
        return part(local_time(value, parse_zone(zone[0]) if zone else UTC))

    return getter


def _milliseconds(value: Any, *zone: Any) -> int:
    """Return the milliseconds within the second of a timestamp (in any zone) or a duration."""
    if value.__class__ is Duration and not zone:
        whole: int = abs(value.ns) // 1_000_000 % 1000
        return whole if value.ns >= 0 else -whole
    if value.__class__ is not Timestamp:
        raise no_such_overload("getMilliseconds", value)
    if zone:
        parse_zone(zone[0])
    part: int = value.ns % NS_PER_SECOND // 1_000_000
    return part


GETTERS: Final[dict[str, Callable[..., int]]] = {
    **{name: _make_getter(name) for name in _TIMESTAMP_PARTS},
    "getMilliseconds": _milliseconds,
}
"""The methods of timestamps, with or without a time zone."""

DURATION_GETTERS: Final = frozenset({*_DURATION_UNITS, "getMilliseconds"})
"""Those that durations have too: the whole duration in the unit, or the milliseconds within."""
