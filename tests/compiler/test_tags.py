"""Tags of types that JSON lacks: accepted values, and their values in expressions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard, PolicyError
from policyguard.compiler.build.tag_types import convert_tag
from policyguard.model.event import Admitted, SessionStarted
from policyguard.model.policy import Tag

NOON = 1_767_268_800 * 10**9
"""2026-01-01T12:00:00Z, in nanoseconds."""
POLICY = """
policyguard: 1
name: tags
tags:
  opens: {type: timestamp, default: '2026-01-01T09:00:00+01:00'}
  risk: {type: double, default: 1}
rules:
  closed: {tools: [enter], when: tags.opens > now, message: 'opens at {tags.opens}'}
  risky: {tools: [jump], when: tags.risk * 1.5 > 2.0, message: 'risk {tags.risk}'}
  mirrored: {tools: [see], when: session.tags.opens > now || session.tags.risk * 1.0 < 0.5}
"""


def guard(folder: Path, **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    return Guard.load(file, clock=lambda: NOON, **options)


@pytest.mark.parametrize(
    ("opens", "allowed"),
    [
        ("2026-01-01T12:00:00Z", True),
        ("2026-01-01T12:00:00.5Z", False),
        ("2026-01-01T12:30:00+01:00", True),
        ("2026-01-01T12:30:00Z", False),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), True),
        (datetime(2026, 1, 1, 12, 30, tzinfo=timezone(timedelta(hours=1))), True),
        (datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC), False),
    ],
)
def test_time_is_a_timestamp(opens: object, allowed: bool, tmp_path: Path) -> None:
    inside = guard(tmp_path)
    decision = inside.session("s", tags={"opens": opens}).check("enter")
    assert decision.errors == ()
    assert decision.allowed is allowed
    assert inside.session("s").check("see").allowed is allowed
    decision = inside.session("t").check("enter", tags={"opens": opens})
    assert decision.errors == ()
    assert decision.allowed is allowed


def test_message_shows_a_time_as_written(tmp_path: Path) -> None:
    later = datetime(2026, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))
    (found,) = guard(tmp_path).session("s", tags={"opens": later}).check("enter").violations
    assert found.text == "opens at 2026-01-02T00:00:00Z"


def test_defaults_are_of_their_type(tmp_path: Path) -> None:
    session = guard(tmp_path).session("s")
    for tool in ("enter", "jump", "see"):
        decision = session.check(tool)
        assert (decision.allowed, decision.errors) == (True, ())


def test_double_accepts_a_whole_number(tmp_path: Path) -> None:
    session = guard(tmp_path).session("s", tags={"risk": 2})
    assert session.check("jump").violations[0].text == "risk 2"
    decision = session.check("jump", tags={"risk": 1})
    assert (decision.allowed, decision.errors) == (True, ())


class Nowhere(tzinfo):
    """A time zone without an offset."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    "opens",
    [
        "yesterday",
        "2026-01-01",
        "2026-01-01T12:00:00",
        "",
        1_767_268_800,
        None,
        True,
        datetime(2026, 1, 1, 12),
        datetime(2026, 1, 1, 12, tzinfo=Nowhere()),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_invalid_time_is_an_error_naming_the_tag(opens: object, tmp_path: Path) -> None:
    inside = guard(tmp_path)
    message = r"tag `opens` must be timestamp \(RFC 3339 text, or a datetime with its zone\), not "
    with pytest.raises(ValueError, match=message):
        inside.session("s", tags={"opens": opens})
    with pytest.raises(ValueError, match=message):
        inside.session("t").check("enter", tags={"opens": opens})


@pytest.mark.parametrize("risk", ["1.0", True, None, 10**400])
def test_invalid_double_is_an_error_naming_the_tag(risk: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tag `risk` must be double, not "):
        guard(tmp_path).session("s", tags={"risk": risk})


def test_journal_stores_times_as_text_and_sessions_resume(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    later = datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    with guard(tmp_path, store=store) as first:
        session = first.session("s", tags={"opens": later, "risk": 2})
        assert session.check("enter", tags={"opens": later}).allowed
    with guard(tmp_path, store=store) as second:
        assert second._journal is not None
        tags = [
            e.tags
            for e in second._journal.read_events("s")
            if isinstance(e, SessionStarted | Admitted)
        ]
        time = "2026-01-01T12:00:00Z"
        assert tags == [{"opens": time, "risk": 2.0}, {"opens": time}]
        session = second.session("s")
        assert session.check("see").allowed
        assert [found.id for found in session.check("jump").violations] == ["rules/risky"]


@pytest.mark.parametrize(
    ("tag", "where"),
    [
        ("{type: timestamp, default: yesterday}", "3:38"),
        ("{type: timestamp, default: '2026-01-01'}", "3:38"),
        ("{type: timestamp, one_of: [noon]}", "3:38"),
    ],
)
def test_times_in_a_policy_are_rfc_3339(tag: str, where: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\ntags: {{t: {tag}}}\n", "utf-8")
    with pytest.raises(PolicyError) as caught:
        Guard.load(file)
    found = caught.value.diagnostics[0]
    assert (found.code, f"{found.span.line}:{found.span.column}") == ("reference/tag", where)
    assert found.help == "write a time as `2026-01-31T09:30:00Z`"


def test_one_of_compares_times_not_text(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: x\n"
        "tags: {t: {type: timestamp, one_of: ['2026-01-01T12:00:00Z'],"
        " default: '2026-01-01T13:00:00+01:00'}}\n"
        "rules: {r: {tools: [x], when: 'tags.t <= now'}}\n",
        "utf-8",
    )
    inside = Guard.load(file, clock=lambda: NOON)
    assert [found.id for found in inside.session("s").check("x").violations] == ["rules/r"]
    with pytest.raises(ValueError, match="one of 2026-01-01T12:00:00Z"):
        inside.session("t", tags={"t": "2026-01-01T12:00:01Z"})


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1)))
def test_datetime_and_its_text_are_the_same_time(moment: datetime) -> None:
    tag = Tag(type="timestamp")
    assert convert_tag(moment, tag) == convert_tag(moment.isoformat(), tag)
    assert convert_tag(moment, tag) is not None
