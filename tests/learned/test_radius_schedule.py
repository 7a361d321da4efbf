"""The radius: what must hold for any outcomes in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policyguard.learned.radius_schedule import RadiusSchedule, RadiusState

AGENT = frozenset({"agent", "harness"})
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
    blame=st.just(AGENT),
    max_errors=st.just(4),
)


def reach(schedule: RadiusSchedule, outcomes: list[dict[str, Any]]) -> RadiusState:
    found = RadiusState()
    for outcome in outcomes:
        found.observe(schedule, **outcome)
    return found


def state(found: RadiusState) -> dict[str, Any]:
    return {name: getattr(found, name) for name in RadiusState.__slots__}


@given(SCHEDULES, st.lists(OUTCOMES))
def test_it_stays_in_its_schedule_and_moves_one_step_at_a_time(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    found = RadiusState()
    for outcome in outcomes:
        before = found.step
        found.observe(schedule, **outcome)
        assert 0 <= found.step < len(schedule.steps)
        assert abs(found.step - before) <= 1
        if found.step > before:
            assert (outcome["ok"], outcome["blame"]) == (False, "agent")
        if found.step < before:
            assert outcome["ok"]


@given(SCHEDULES, st.lists(OUTCOMES))
def test_what_is_not_the_agents_fault_changes_nothing(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    kept = [one for one in outcomes if one["ok"] or one["blame"] == "agent"]
    assert state(reach(schedule, outcomes)) == state(reach(schedule, kept))


@given(SCHEDULES, st.lists(OUTCOMES))
def test_enough_failures_lead_to_the_narrowest_and_successes_back(
    schedule: RadiusSchedule, outcomes: list[dict[str, Any]]
) -> None:
    found = reach(schedule, outcomes)
    for _ in range(len(schedule.steps) * schedule.shrink_after):
        found.observe(schedule, ok=False, blame="agent", error="c")
    assert found.step == len(schedule.steps) - 1
    for _ in range(len(schedule.steps) * (schedule.widen_after or 1)):
        found.observe(schedule, ok=True)
    assert found.step == (0 if schedule.widen_after else len(schedule.steps) - 1)


def test_different_errors_neither_corroborate_each_other_nor_pile_up() -> None:
    schedule = RadiusSchedule((None, 1), 2, None, AGENT, max_errors=4)
    found = reach(schedule, [{"ok": False, "blame": "agent", "error": str(n)} for n in range(99)])
    assert found.step == 0
    assert list(found.failures) == ["95", "96", "97", "98"]
    found.observe(schedule, ok=False, blame="agent", error="95")
    assert found.step == 1


def test_the_successes_of_one_batch_are_one() -> None:
    schedule = RadiusSchedule((None, 1), 1, 2, AGENT, max_errors=4)
    found = reach(schedule, [{"ok": False, "blame": "agent", "error": "a"}])
    for _ in range(9):
        found.observe(schedule, ok=True, batch="b")
    assert found.step == 1
    found.observe(schedule, ok=True, batch="c")
    assert found.step == 0


def test_a_failure_counts_also_in_a_batch_that_began_with_a_success() -> None:
    schedule = RadiusSchedule((None, 1), 1, 1, AGENT, max_errors=4)
    found = reach(schedule, [{"ok": True, "batch": "b"}, {"ok": True, "batch": "b"}])
    found.observe(schedule, ok=False, blame="agent", error="a", batch="b")
    assert found.step == 1
    found.observe(schedule, ok=True, batch="b")
    assert found.step == 1
    found.observe(schedule, ok=True, batch="c")
    assert found.step == 0
