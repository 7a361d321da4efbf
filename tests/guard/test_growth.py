"""Memory stays bounded however many tools, sessions, keys and failures an agent makes up."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard

POLICY = """
policyguard: 1
name: growth
extends: [core]
learn: {corroborate: 1, scope: project, ban: call, blame: [agent, unknown]}
limits: {default: {failures: none, refusals: none}, tools: {"poll*": {polling: {unchanged: 2}}}}
rules: {counted: {when: "session.count('x') > 5 && outcome_never", on_error: allow}}
bounds:
  {sessions: 50, plans: 40, in_flight: 30, window_entries: 64, budget_keys: 20, constraints: 60,
   evidence: 60}
budgets:
  keyed: {calls: 5, per: [session, call.tool]}
"""


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace(" && outcome_never", ""))
    return Guard.load(file)


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_tools_and_failures_stay_within_the_caps(guard: Guard, count: int) -> None:
    session = guard.session("one")
    refused = 0
    for number in range(count):
        decision = session.check(f"tool{number}", {"n": number})
        if not decision.allowed:
            refused += 1
            assert decision.violations[0].id == "budgets/keyed"
        elif number % 3:
            session.record(decision, error=f"strange {number}")
        session.check(f"poll{number}", {"n": number})
    state = guard._state.evaluator_state.sessions["one"]
    constraints = guard._state.constraint_set
    assert refused > count - 100, "the keys of the budget are full"
    assert len(state.in_flight) <= 30
    assert len(constraints) <= 60
    assert len(list(constraints.evidence())) <= 60
    assert len(state.cel_session["#tools"]) <= 40
    assert all(len(usages) <= 20 for usages in guard._state.evaluator_state.ledger.usages.values())
    assert len(state.confirmed_constraints) <= 64
    assert guard._evaluator.plan.cache_info().currsize <= 40
    assert guard._evaluator.candidates.cache_info().currsize <= 40


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_sessions_stay_within_the_cap(guard: Guard, count: int) -> None:
    for number in range(count):
        session = guard.session(f"s{number}")
        session.record(session.check("x", {"n": number}), result="fine")
    assert len(guard._state.evaluator_state.sessions) <= 50
    assert len(guard._state.evaluator_state.ledger.usages["budgets/keyed"]) <= 50
