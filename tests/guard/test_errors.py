"""Errors of the public API: which are policyguard's own, and what they say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from policyguard import ClosedError, Guard, PolicyguardError, UnknownCallError


def test_what_is_closed_is_an_error_of_our_own() -> None:
    guard = Guard.load("core")
    session = guard.session("s")
    session.close()
    with pytest.raises(ClosedError, match=r"open it again with `guard.session`"):
        session.turn()
    guard.close()
    with pytest.raises(PolicyguardError, match="the guard is closed: load another"):
        guard.session("t")


def test_a_closed_session_knows_its_calls_and_no_others() -> None:
    session = Guard.load("core").session("s")
    session.check("read", {"path": "a"}, call="toolu_1")
    session.close()
    for known in ("c1", "toolu_1"):
        recorded = session.record(known, result="text")
        assert not recorded.counted
        assert recorded.errors[0].id == "session/closed"
    for unknown in ("c2", "nope"):
        with pytest.raises(UnknownCallError, match="the session is closed: open it again"):
            session.record(unknown, result="text")


def test_a_host_cannot_use_an_id_of_our_own() -> None:
    session = Guard.load("core").session("s")
    session.check("read", {"path": "a"})
    for call in ("c1", "c7"):
        with pytest.raises(
            ValueError, match=f"`call` is `{call}`, like an id of policyguard's own"
        ):
            session.check("read", {"path": "b"}, call=call)
    assert session.record("c1", result="text").counted
    assert session.check("read", {"path": "b"}, call="c0").id == "c2"


def test_seconds_are_no_time_of_a_call() -> None:
    session = Guard.load("core").session("s")
    with pytest.raises(TypeError, match=r"`at` is .*, not an aware `datetime` or nanoseconds"):
        session.check("read", {}, at=time.time())  # type: ignore[arg-type]  # the mistake


def test_a_negative_duration_counts_as_zero() -> None:
    session = Guard.load("core").session("s")
    events: list[object] = []
    session.guard.on(events.append)
    session.record(session.check("read", {}), result="x", duration=-3)
    assert [event.duration for event in events if hasattr(event, "duration")] == [0.0]


def test_a_time_budget_is_left_as_a_duration(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "policyguard: 1\nname: p\nbudgets:\n  task: {time: 10m}\n"
        "limits: {default: {repeat: {max: 1}}}\n"
    )
    session = Guard.load(policy, clock=lambda: 0).session("s")
    for second in (0, 1, 2):
        decision = session.check("read", {"path": "a"}, at=second * 10**9)
        if decision:
            session.record(decision, result="x", at=second * 10**9)
    assert not decision
    assert decision.message.endswith("Left: budgets/task 9m58s")
    assert decision.left == {"budgets/task": 598.0}
