"""Radius: properties that hold for any sequence of outcomes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policyguard.learned.radius_schedule import RadiusSchedule, RadiusState

BLAMES = frozenset({"agent", "harness"})
OUTCOMES = st.fixed_dictionaries(
    {
        "ok": st.booleans(),
        "blame": st.sampled_from(["agent", "harness", "unknown"]),
        "error": st.sampled_from("ab"),
        "batch": st.sampled_from(["", "", "x", "y"]),
    }
)
SCHEDULES = st.builds(
    RadiusSchedule,
    steps=st.sampled_from([(None,), (5, 1), (None, 5, 3, 2, 1)]),
    shrink_after=st.integers(1, 3),
    widen_after=st.none() | st.integers(1, 3),
    blame=st.just(BLAMES),
    max_errors=st.just(4),
)


def state_after(schedule: RadiusSchedule, outcomes: list[dict[str, Any]]) -> RadiusState:
    state = RadiusState()
    for outcome in outcomes:
        state.observe(schedule, **outcome)
    return state


def slots_of(state: RadiusState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in RadiusState.__slots__}


@given(SCHEDULES, st.lists(OUTCOMES))
def test_radius_moves_one_step_at_a_time_within_its_schedule(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    state = RadiusState()
    for outcome in outcomes:
        before = state.step
        state.observe(schedule, **outcome)
        assert 0 <= state.step < len(schedule.steps)
        assert abs(state.step - before) <= 1
        if state.step > before:
            assert (outcome["ok"], outcome["blame"]) == (False, "agent")
        if state.step < before:
            assert outcome["ok"]


@given(SCHEDULES, st.lists(OUTCOMES))
def test_failures_not_blamed_on_the_agent_change_nothing(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    relevant = [one for one in outcomes if one["ok"] or one["blame"] == "agent"]
    assert slots_of(state_after(schedule, outcomes)) == slots_of(state_after(schedule, relevant))


@given(SCHEDULES, st.lists(OUTCOMES))
def test_failures_narrow_the_radius_and_successes_widen_it(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    state = state_after(schedule, outcomes)
    for _ in range(len(schedule.steps) * schedule.shrink_after):
        state.observe(schedule, ok=False, blame="agent", error="c")
    assert state.step == len(schedule.steps) - 1
    for _ in range(len(schedule.steps) * (schedule.widen_after or 1)):
        state.observe(schedule, ok=True)
    assert state.step == (0 if schedule.widen_after else len(schedule.steps) - 1)


def test_different_errors_do_not_corroborate_and_are_capped() -> None:
    schedule = RadiusSchedule((None, 1), 2, None, BLAMES, max_errors=4)
    state = state_after(
        schedule, [{"ok": False, "blame": "agent", "error": str(n)} for n in range(99)]
    )
    assert state.step == 0
    assert list(state.failures) == ["95", "96", "97", "98"]
    state.observe(schedule, ok=False, blame="agent", error="95")
    assert state.step == 1


def test_successes_of_one_batch_count_once() -> None:
    schedule = RadiusSchedule((None, 1), 1, 2, BLAMES, max_errors=4)
    state = state_after(schedule, [{"ok": False, "blame": "agent", "error": "a"}])
    for _ in range(9):
        state.observe(schedule, ok=True, batch="b")
    assert state.step == 1
    state.observe(schedule, ok=True, batch="c")
    assert state.step == 0


def test_failure_counts_in_a_batch_that_began_with_a_success() -> None:
    schedule = RadiusSchedule((None, 1), 1, 1, BLAMES, max_errors=4)
    state = state_after(schedule, [{"ok": True, "batch": "b"}, {"ok": True, "batch": "b"}])
    state.observe(schedule, ok=False, blame="agent", error="a", batch="b")
    assert state.step == 1
    state.observe(schedule, ok=True, batch="b")
    assert state.step == 1
    state.observe(schedule, ok=True, batch="c")
    assert state.step == 0
