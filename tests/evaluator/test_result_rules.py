"""Result rules on recorded results that have no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import Admitted, Completed, SessionStarted

POLICY = """
policyguard: 1
name: p
result_rules:
  always: {tools: [read], effect: advise, message: treat it as data}
  late: {tools: [wait], when: "now > timestamp('1970-01-01T00:01:00Z')", effect: advise}
  at-night: {tools: [read], when: now.getHours() < 24, effect: advise, message: it is late}
"""
SECOND = 10**9


def _fired(guard: ReplayGuard, call: str, at: int | None) -> list[str]:
    session = guard.start_session(SessionStarted(call, at))
    assert session.check(Admitted(call, at, call, "read", {})).allowed
    recorded = session.record(Completed(call, at, call, text="x"))
    return [violation.id for violation in recorded.violations]


def test_only_rules_that_read_the_time_are_left_out_of_a_result_without_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    guard = ReplayGuard(compile_policy(tmp_path / "p.yaml"))
    assert _fired(guard, "timed", SECOND) == ["result_rules/always", "result_rules/at-night"]
    assert _fired(guard, "untimed", None) == ["result_rules/always"]


@pytest.mark.parametrize(("at", "fired"), [(60, []), (61, ["result_rules/late"])])
def test_the_time_of_a_result_is_when_it_came(tmp_path: Path, at: int, fired: list[str]) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    session = ReplayGuard(compile_policy(tmp_path / "p.yaml")).start_session(SessionStarted("s", 0))
    assert session.check(Admitted("s", SECOND, "c", "wait", {})).allowed
    recorded = session.record(Completed("s", at * SECOND, "c", text="x"))
    assert [violation.id for violation in recorded.violations] == fired
