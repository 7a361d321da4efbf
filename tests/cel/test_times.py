"""Timestamps, durations, time zones, and weekly hours."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import cel
from policyguard.cel import Duration, Timestamp
from policyguard.cel.errors import OperationError
from policyguard.cel.functions.schedules import Schedule
from policyguard.cel.types.times import parse_duration, parse_timestamp

SECOND = 10**9
DECLARATIONS = cel.Declarations({"now": cel.TIMESTAMP, "d": cel.DURATION, "x": cel.DYN})


def evaluate(source: str, **values: Any) -> Any:
    return cel.compile(source, DECLARATIONS).raw(**values)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("1h30m", 5400 * SECOND),
        ("-90s", -90 * SECOND),
        ("+1m", 60 * SECOND),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", SECOND),
        ("1h1m1s1ms1us1ns", 3661_001_001_001),
        ("1µs", 1000),
        ("1μs", 1000),
        ("0.000000001s", 1),
        ("0.1ns", 0),
        ("9223372036.854775807s", 2**63 - 1),
        ("-9223372036.854775808s", -(2**63)),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text).ns == ns


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1d", "1 s", " 1s", "1s ", "--1s", "1S", "1s1", "1e3s", ".s", "١s", "-"]
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(OperationError) as caught:
        parse_duration(text)
    assert caught.value.kind == "invalid-argument"


@pytest.mark.parametrize("text", ["9223372036.854775808s", "-9223372037s", "3000000h"])
def test_durations_out_of_range(text: str) -> None:
    with pytest.raises(OperationError) as caught:
        parse_duration(text)
    assert caught.value.kind == "overflow"


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59Z"),
        ("2024-02-29t23:59:59z", "2024-02-29T23:59:59Z"),
        ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z"),
        ("2024-01-01T00:30:00.120-00:30", "2024-01-01T01:00:00.12Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
        ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.5Z"),
    ],
)
def test_timestamps(text: str, formatted: str) -> None:
    assert str(parse_timestamp(text)) == formatted
    assert parse_timestamp(formatted) == parse_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+0100",
        "2024-01-01T00:00:00.0000000001Z",
        "2024-01-01T00:00:00.Z",
        "0000-01-01T00:00:00Z",
        "20240-01-01T00:00:00Z",
        "٢٠٢٤-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z\n",
    ],
)
def test_invalid_timestamps(text: str) -> None:
    with pytest.raises(OperationError):
        parse_timestamp(text)


def test_timestamps_out_of_range() -> None:
    for text in ("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"):
        with pytest.raises(OperationError, match="1 to 9999"):
            parse_timestamp(text)
    with pytest.raises(OperationError):
        Timestamp.from_ns(10**21)
    with pytest.raises(OperationError):
        Duration.from_ns(2**63)


@given(st.integers(-(2**63), 2**63 - 1))
def test_formatted_times_can_be_parsed(ns: int) -> None:
    assert parse_duration(str(Duration.from_ns(ns))).ns == ns
    assert parse_timestamp(str(Timestamp.from_ns(ns))).ns == ns


@given(st.integers(-(2**61), 2**61), st.integers(-(2**61), 2**61))
def test_arithmetic_is_exact(a: int, b: int) -> None:
    now = Timestamp(a)
    assert evaluate("now + d", now=now, d=Duration(b)) == Timestamp(a + b)
    assert evaluate("now - d", now=now, d=Duration(b)) == Timestamp(a - b)
    assert evaluate("now - x", now=now, x=Timestamp(b)) == Duration(a - b)
    assert evaluate("d + x", d=Duration(a), x=Duration(b)) == Duration(a + b)
    assert evaluate("now < x", now=now, x=Timestamp(b)) is (a < b)
    assert evaluate("now >= x", now=now, x=Timestamp(b)) is (a >= b)
    assert evaluate("now == x", now=now, x=Timestamp(b)) is (a == b)
    if a == b:
        assert hash(now) == hash(Timestamp(b))


def test_timestamps_and_durations_never_mix() -> None:
    assert Timestamp(1) != Duration(1)
    assert Timestamp(1) != 1
    assert len({Timestamp(1), Duration(1), Timestamp(1)}) == 2
    assert repr(Duration(1_500_000_000)) == "Duration('1.5s')"
    with pytest.raises(cel.CelEvaluationError):
        evaluate("x < d", x=Timestamp(1), d=Duration(1))
    with pytest.raises(cel.CelEvaluationError):
        evaluate("x + x", x=Timestamp(1))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("x.getHours()", -1),
        ("x.getMinutes()", -90),
        ("x.getSeconds()", -5400),
        ("x.getMilliseconds()", -250),
        ("string(x)", "-5400.25s"),
    ],
)
def test_parts_of_a_duration_round_towards_zero(source: str, value: Any) -> None:
    assert evaluate(source, x=Duration(-5400 * SECOND - 250_000_000)) == value


class TestZones:
    @pytest.mark.parametrize(
        ("zone", "hours"),
        [("UTC", 1), ("Europe/Berlin", 3), ("+05:30", 6), ("05:30", 6), ("-02:00", 23)],
    )
    def test_hours(self, zone: str, hours: int) -> None:
        now = parse_timestamp("2024-07-01T01:00:00Z")
        assert evaluate(f"now.getHours('{zone}')", now=now) == hours

    @pytest.mark.parametrize(
        "zone",
        [
            *("", "Nowhere", "Europe", "America", "../../etc/passwd", "/etc/localtime", "+24:00"),
            *("5:30", "+05:60", "UTC\0", "\ud800", "a" * 1000, "posixrules/..", "é"),
        ],
    )
    def test_invalid_zones(self, zone: str) -> None:
        with pytest.raises(cel.CelEvaluationError) as caught:
            evaluate("now.getHours(x)", now=Timestamp(0), x=zone)
        assert caught.value.kind == "invalid-argument"

    def test_a_zone_is_a_string(self) -> None:
        with pytest.raises(cel.CelEvaluationError) as caught:
            evaluate("now.getHours(x)", now=Timestamp(0), x=3)
        assert caught.value.kind == "no-such-overload"

    def test_local_times_beyond_the_calendar(self) -> None:
        last = parse_timestamp("9999-12-31T23:59:59Z")
        with pytest.raises(cel.CelEvaluationError) as caught:
            evaluate("now.getHours('+10:00')", now=last)
        assert caught.value.kind == "overflow"


class TestSchedules:
    @pytest.mark.parametrize(
        ("hours", "inside", "outside"),
        [
            (
                "Mon-Fri 09:00-17:00 Europe/Berlin",
                ["2024-06-03T07:00:00Z", "2024-06-07T14:59:59.999Z", "2024-12-02T08:00:00Z"],
                ["2024-06-03T06:59:59Z", "2024-06-07T15:00:00Z", "2024-06-08T10:00:00Z"],
            ),
            (
                "Fri-Mon 22:00-06:00 UTC",
                ["2024-06-07T22:00:00Z", "2024-06-08T05:59:00Z", "2024-06-11T05:00:00Z"],
                ["2024-06-07T05:00:00Z", "2024-06-08T06:00:00Z", "2024-06-11T22:00:00Z"],
            ),
            (
                "sat,SUN 00:00-24:00 -05:00",
                ["2024-06-08T05:00:00Z", "2024-06-10T04:59:59Z"],
                ["2024-06-08T04:59:59Z", "2024-06-10T05:00:00Z"],
            ),
            ("  12:00-13:00   Asia/Kathmandu ", ["2024-06-05T06:15:00Z"], ["2024-06-05T12:30:00Z"]),
            ("Mon,Wed-Thu 00:00-12:00 UTC", ["2024-06-06T11:59:00Z"], ["2024-06-04T11:00:00Z"]),
            ("18:00-24:00 UTC", ["2024-06-06T23:59:59Z"], ["2024-06-06T00:00:00Z"]),
            (
                "08:30-17:59 UTC",
                ["2024-06-06T08:30:00Z", "2024-06-06T17:58:59Z"],
                ["2024-06-06T08:29:59Z", "2024-06-06T17:59:00Z"],
            ),
        ],
    )
    def test_hours(self, hours: str, inside: list[str], outside: list[str]) -> None:
        program = cel.compile(f"now.during('{hours}')", DECLARATIONS, expect=cel.BOOL)
        assert [program(now=parse_timestamp(text)) for text in inside] == [True] * len(inside)
        assert [program(now=parse_timestamp(text)) for text in outside] == [False] * len(outside)

    @pytest.mark.parametrize(
        "hours",
        [
            *("", "Mon-Fri", "09:00-17:00", "Mon-Fri 09:00-17:00", "Mon-Fri 9:00-17:00 UTC"),
            *("Mon-Fri 09:00-17:00 Mars/Base", "Mon-Fri-Sun 09:00-17:00 UTC"),
            *("Day 09:00-17:00 UTC", "09:00-09:00 UTC", "24:00-06:00 UTC", "09:60-17:00 UTC"),
            *("09:00-25:00 UTC", "09:00-24:01 UTC", "09:00-24:59 UTC"),
            *("Mon-Fri 09:00-17:00 UTC 1", "Mon - Fri 09:00-17:00 UTC"),
            "Mon, 09:00-17:00 UTC",
        ],
    )
    def test_invalid_schedules(self, hours: str) -> None:
        with pytest.raises(ValueError, match=r"hours|zone|day"):
            Schedule(hours)

    def test_only_timestamps_have_hours(self) -> None:
        with pytest.raises(cel.CelEvaluationError):
            evaluate("x.during('09:00-17:00 UTC')", x="2024-06-03T07:00:00Z")

    @given(st.datetimes(datetime.datetime(1975, 1, 1), datetime.datetime(2035, 1, 1)))
    def test_hours_are_local_clock_times(self, utc: datetime.datetime) -> None:
        local = utc.replace(tzinfo=datetime.UTC).astimezone(ZoneInfo("America/New_York"))
        expected = local.weekday() < 5 and 9 <= local.hour < 17
        moment = parse_timestamp(utc.replace(microsecond=0).isoformat() + "Z")
        assert Schedule("Mon-Fri 09:00-17:00 America/New_York").contains(moment) is expected
