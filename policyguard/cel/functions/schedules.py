"""Weekly hours: `now.during('Mon-Fri 09:00-17:00 Europe/Berlin')`."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.functions import calendar
from policyguard.cel.types.times import Timestamp
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.lazy_pattern import lazy_pattern

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SCHEDULE: Final = lazy_pattern(
    r"(?:(?P<days>[A-Za-z]{3}(?:[-,][A-Za-z]{3}){0,6}) +)?"
    r"(?P<from>[0-9]{2}:[0-9]{2})-(?P<to>[0-9]{2}:[0-9]{2}) +(?P<zone>[A-Za-z0-9_+:/-]+)"
)
_MINUTES_PER_DAY: Final = 24 * 60


class Schedule:
    """Days of the week, hours, and a time zone. Immutable.

    Days are `Mon-Fri`, `Sat,Sun`, `Mon,Wed-Fri`, or omitted for every day; a range may wrap around
    the week. Hours include the start and exclude the end; `24:00` is the end of the day. If the end
    is before the start, the hours span midnight and belong to the day on which they begin. Times
    are local clock times of the zone.
    """

    __slots__ = ("_days", "_from", "_to", "_zone", "text")

    def __init__(self, text: str) -> None:
        """Parse a schedule; raise `ValueError` with the reason if it is invalid."""
        match = _SCHEDULE.fullmatch(text.strip())
        if match is None:
            raise ValueError("write hours as `Mon-Fri 09:00-17:00 Europe/Berlin`")
        self.text = text
        self._days = _parse_days(match["days"]) if match["days"] else frozenset(range(7))
        self._from = _parse_minutes(match["from"])
        self._to = _parse_minutes(match["to"])
        if self._from == self._to or self._from == _MINUTES_PER_DAY:
            raise ValueError("the hours are empty: write `00:00-24:00` for the whole day")
        try:
            self._zone = calendar.parse_zone(match["zone"])
        except OperationError as error:
            raise ValueError(str(error)) from None

    def contains(self, moment: Timestamp) -> bool:
        """Whether `moment` lies within these hours."""
        local = calendar.local_time(moment, self._zone)
        day = local.weekday()
        minute = local.hour * 60 + local.minute
        if self._from < self._to:
            return day in self._days and self._from <= minute < self._to
        if minute >= self._from:
            return day in self._days
        return minute < self._to and (day - 1) % 7 in self._days


def _parse_days(text: str) -> frozenset[int]:
    result: set[int] = set()
    for item in text.split(","):
        first, *rest = (_parse_day(name) for name in item.split("-"))
        if len(rest) > 1:
            raise ValueError(f"`{item}` is not a range of days")
        last = rest[0] if rest else first
        result.update((first + offset) % 7 for offset in range((last - first) % 7 + 1))
    return frozenset(result)


def _parse_day(name: str) -> int:
    if name.title() not in _DAYS:
        raise ValueError(f"unknown day `{name}`; use {', '.join(_DAYS)}")
    return _DAYS.index(name.title())


def _parse_minutes(text: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if minutes > 59 or hours * 60 + minutes > _MINUTES_PER_DAY:
        raise ValueError(f"`{text}` is not a time of day")
    return hours * 60 + minutes


def is_during(moment: Any, schedule: Schedule) -> bool:
    """`moment.during(hours)`."""
    if moment.__class__ is not Timestamp:
        raise no_such_overload("during", moment)
    return schedule.contains(moment)
