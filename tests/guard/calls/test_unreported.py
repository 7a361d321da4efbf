"""A host that checks its calls and never records them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from policyguard import Guard, UnknownCallError
from policyguard.model.event import Event


def test_repeated_calls_are_refused_and_the_host_is_warned_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Guard.load("core").session("s")
    with caplog.at_level(logging.WARNING, "policyguard"):
        decisions = [session.check("bash", {"command": "make"}) for _ in range(20)]
    assert [decision.allowed for decision in decisions] == [True] * 4 + [False] * 16
    noted = [decision for decision in decisions if decision.errors]
    assert len(noted) == len(caplog.records) == 1
    assert noted[0].errors[0].id == "session/unreported"
    assert "call `record`" in caplog.text


def test_a_host_that_records_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    session = Guard.load("core").session("s")
    session.record(session.check("ls", {}), result="a")
    decisions = [session.check("bash", {"command": "make"}) for _ in range(20)]
    assert not decisions[-1].allowed
    assert not any(decision.errors for decision in decisions)
    assert not caplog.records


def test_different_calls_in_flight_are_fine() -> None:
    session = Guard.load("core").session("s")
    assert all(session.check("read_file", {"path": str(n)}, batch="b").allowed for n in range(50))


def test_alternating_calls_are_noted_too() -> None:
    session = Guard.load("core").session("s")
    decisions = [session.check("bash", {"command": f"make {n % 5}"}) for n in range(30)]
    assert sum(decision.allowed for decision in decisions) == 10
    assert [decision.errors[0].id for decision in decisions if decision.errors] == [
        "session/unreported"
    ]


def test_the_host_is_warned_where_no_limit_counts_calls_in_flight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Guard.load("narrowing").session("s")
    with caplog.at_level(logging.WARNING, "policyguard"):
        decisions = [session.check("bash", {"command": f"make {n}"}) for n in range(1100)]
    assert [error.id for one in decisions for error in one.errors] == ["session/unreported"]
    assert len(caplog.records) == 1
    assert "call `record`" in caplog.text


def test_a_lost_report_among_others_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    session = Guard.load("narrowing").session("s")
    session.record(session.check("ls", {}), result="a")
    for n in range(1100):
        session.check("bash", {"command": f"make {n}"})
    assert not caplog.records


@pytest.mark.parametrize("in_flight", [4, 1], ids=["whole", "reduced"])
def test_a_call_that_was_given_up_in_an_ended_session_is_unknown(
    tmp_path: Path, in_flight: int
) -> None:
    file, now, events = tmp_path / "policy.yaml", [10**18], list[Event]()
    file.write_text(
        "policyguard: 1\nname: p\n"
        f"bounds: {{unreported: 1m, in_flight: {in_flight}, given_up: 8}}\n"
        "budgets: {jobs: {tools: [job], calls: 9}}\n"
    )
    session = Guard.load(file, clock=lambda: now[0], listener=events.append).session("s")
    for number in range(4):
        assert session.check("job", {"n": number}, call=f"h{number}").allowed
        now[0] += 100 * 10**9
    assert [*session.in_flight] == ["h3"]
    session.end()
    recorded = len(events)
    for number in range(4):
        with pytest.raises(UnknownCallError, match="the session is over"):
            session.record(f"h{number}", result="late")
    assert len(events) == recorded
