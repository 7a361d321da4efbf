"""The replay interface: recorded events run under a policy with their own times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Completed, SessionEnded, SessionStarted

POLICY = """
policyguard: 1
name: p
budgets: {reads: {tools: [read], calls: 1}}
classify: {state_changing: "call.tool == 'write'"}
limits: {default: {repeat: {max: 1, same: call_and_result}}}
"""
SECOND = 1_000_000_000


@pytest.fixture
def guard(tmp_path: Path) -> ReplayGuard:
    (tmp_path / "p.yaml").write_text(POLICY)
    return ReplayGuard(compile_policy(tmp_path / "p.yaml"))


def _call(number: int, tool: str = "read") -> Admitted:
    return Admitted("s", number * SECOND, f"c{number}", tool, {})


def _start(guard: ReplayGuard) -> ReplaySession:
    return guard.start_session(SessionStarted("s", 0))


def test_refused_call_is_not_counted(guard: ReplayGuard) -> None:
    session = _start(guard)
    assert session.check(_call(1)).allowed
    assert not session.check(_call(2)).allowed
    assert guard.inspect("s")["calls"] == 1
    assert not session.record(Completed("s", 3 * SECOND, "c2", text="x")).counted


def test_preview_counts_nothing(guard: ReplayGuard) -> None:
    session = _start(guard)
    assert session.preview(_call(1)).allowed
    assert session.preview(_call(1)).allowed
    assert guard.inspect("s")["calls"] == 0


def test_call_can_be_admitted_against_the_policy(guard: ReplayGuard) -> None:
    session = _start(guard)
    session.check(_call(1))
    session.admit(_call(2), state_changing=False)
    assert guard.inspect("s")["calls"] == 2
    assert not guard.observe
    assert session.check(_call(3)).effect is Effect.BLOCK


def test_a_call_without_a_time_is_under_no_budget_of_time(tmp_path: Path) -> None:
    budgets = "budgets: {hour: {time: 1h}}"
    (tmp_path / "p.yaml").write_text(f"policyguard: 1\nname: p\n{budgets}\n")
    session = _start(ReplayGuard(compile_policy(tmp_path / "p.yaml")))
    assert session.check(_call(1)).allowed
    assert session.check(Admitted("s", None, "c2", "read", {})).allowed
    assert not session.check(_call(3601)).allowed


def test_a_result_without_a_time_counts(guard: ReplayGuard) -> None:
    session = _start(guard)
    assert session.check(_call(1, "look")).allowed
    assert session.record(Completed("s", None, "c1", text="x")).counted
    assert session.check(_call(2, "look")).effect is Effect.BLOCK


def test_admitted_state_change_ends_a_repetition(guard: ReplayGuard) -> None:
    for state_changing in (False, True):
        session = _start(guard)
        for number in (1, 2):
            event = _call(number, "list" if number == 1 else "other")
            session.admit(event, state_changing=state_changing and number == 2)
            session.record(Completed("s", number * SECOND, event.call, text="x"))
        assert session.preview(_call(3, "list")).allowed is state_changing
        session.apply(SessionEnded("s", 4 * SECOND))


@pytest.mark.parametrize(
    ("result", "ok"),
    [
        ({"text": "x"}, True),
        ({"error": "x"}, False),
        ({"text": "x", "exit_code": 1}, False),
        ({"text": "x", "status": 500}, False),
        ({"ok": True, "text": "x", "exit_code": 1}, True),
        ({"ok": True, "text": "x", "status": 500}, True),
        ({"ok": False, "text": "x", "exit_code": 0}, False),
    ],
)
def test_result_fails_as_it_says_or_else_by_its_codes(
    guard: ReplayGuard, result: dict[str, Any], ok: bool
) -> None:
    session = _start(guard)
    session.check(_call(1))
    recorded = session.record(Completed("s", 2 * SECOND, "c1", **result))
    assert recorded.outcome is not None
    assert recorded.outcome.ok is ok


def test_result_rules_of_the_recorded_policy_have_no_effect(guard: ReplayGuard) -> None:
    session = _start(guard)
    session.check(_call(1))
    rule = "result_rules/leak"
    event = Completed("s", SECOND, "c1", text="x", fired=(rule,), edited=True, halted_by=rule)
    report = session.record(event).outcome.report
    assert (report.fired, report.edited, report.halted_by) == ((), False, "")
    assert session.check(_call(2, "look")).allowed


def test_no_limit_can_fire_on_a_new_call(guard: ReplayGuard) -> None:
    session = _start(guard)
    plans = [guard._evaluator.plan("list", "", "", (), "")]
    assert not session.can_fire(_call(1, "list"), plans)
    session.check(_call(1, "list"))
    session.record(Completed("s", 1 * SECOND, "c1", text="x"))
    assert session.can_fire(_call(2, "list"), plans)


def test_no_limit_can_fire_after_a_failure_that_none_counts(guard: ReplayGuard) -> None:
    session = _start(guard)
    session.check(_call(1, "look"))
    session.record(Completed("s", SECOND, "c1", error="down"))
    plans = [guard._evaluator.plan("list", "", "", (), "")]
    assert not session.can_fire(_call(2, "list"), plans)


def test_limit_can_fire_on_a_call_in_other_words(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        POLICY.replace("classify: {", "classify: {likeness: {fold: [query]}, ")
    )
    guard = ReplayGuard(compile_policy(tmp_path / "p.yaml"))
    session = _start(guard)
    plans = [guard._evaluator.plan("list", "", "", (), "")]
    session.check(Admitted("s", SECOND, "c1", "list", {"query": "New  Orders"}))
    session.record(Completed("s", SECOND, "c1", text="x"))
    assert session.can_fire(Admitted("s", SECOND, "c2", "list", {"query": "NEW orders"}), plans)
    assert not session.can_fire(Admitted("s", SECOND, "c2", "list", {"query": "new"}), plans)


def test_limit_can_fire_on_a_call_that_its_key_makes_the_same(tmp_path: Path) -> None:
    repeat = "repeat: {max: 1, key: call.args.of}"
    (tmp_path / "p.yaml").write_text(
        f"policyguard: 1\nname: p\nlimits: {{default: {{{repeat}}}}}\n"
    )
    guard = ReplayGuard(compile_policy(tmp_path / "p.yaml"))
    session = _start(guard)
    session.check(Admitted("s", SECOND, "c1", "list", {"of": "x", "n": 1}))
    session.record(Completed("s", SECOND, "c1", text="x"))
    again = Admitted("s", SECOND, "c2", "list", {"of": "x", "n": 2})
    assert session.can_fire(again, [guard._evaluator.plan("list", "", "", (), "")])
    assert not session.check(again).allowed


def test_limit_can_fire_after_a_failure(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "policyguard: 1\nname: p\nlimits: {default: {failures: {max: 3}}}\n"
    )
    guard = ReplayGuard(compile_policy(tmp_path / "p.yaml"))
    session = _start(guard)
    plans = [guard._evaluator.plan("list", "", "", (), "")]
    assert not session.can_fire(_call(1, "list"), plans)
    session.check(_call(1, "list"))
    session.record(Completed("s", SECOND, "c1", error="down"))
    assert session.can_fire(_call(2, "list"), plans)


def test_closed_session_has_no_variables(guard: ReplayGuard) -> None:
    session = _start(guard)
    session.apply(SessionEnded("s", SECOND))
    assert session.closed
    assert guard.inspect("s") == {}


def test_session_without_a_start_time_starts_with_its_first_timed_event(tmp_path: Path) -> None:
    """Recordings whose head has no time."""
    rule = "{when: \"session.elapsed >= duration('5s')\", message: m}"
    (tmp_path / "late.yaml").write_text(f"policyguard: 1\nname: late\nrules: {{late: {rule}}}\n")
    guard = ReplayGuard(compile_policy(tmp_path / "late.yaml"))
    session = guard.start_session(SessionStarted("s", None))
    assert session.check(_call(1)).allowed
    assert session.check(_call(5)).allowed
    assert not session.check(_call(6)).allowed


def test_limit_can_fire_on_a_call_that_cannot_be_identified(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY + "bounds: {argument_bytes: 100}\n")
    guard = ReplayGuard(compile_policy(tmp_path / "p.yaml"))
    session = _start(guard)
    plans = [guard._evaluator.plan("list", "", "", (), "")]
    assert session.can_fire(Admitted("s", SECOND, "c1", "list", {"query": "x" * 200}), plans)


def test_a_second_start_of_an_open_session_may_name_another_owner(guard: ReplayGuard) -> None:
    """Recordings of several files."""
    session = _start(guard)
    session.check(_call(1))
    again = guard.start_session(SessionStarted("s", SECOND, user="ann", agent="a"))
    assert not again.check(_call(2)).allowed
