"""State changes and refused attempts, compared with what their whole history says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policyguard.evaluator.limits.escalation import RefusedAttempts
from policyguard.evaluator.limits.state_changes import StateChanges

CALLS = st.sampled_from("abc")
TIMES = st.none() | st.integers(0, 99)


@given(st.lists(st.tuples(CALLS, TIMES), max_size=8), CALLS)
def test_last_change_is_that_of_the_latest_other_call(
    records: list[tuple[str, int | None]], call: str
) -> None:
    changes = StateChanges()
    for number, (changed_by, at) in enumerate(records, 1):
        changes.seq = number
        changes.record(changed_by, at)
    others = [
        (number, at) for number, (changed_by, at) in enumerate(records, 1) if changed_by != call
    ]
    expected = others[-1] if others else (0, None)
    assert (changes.last_change_except(call), changes.last_change_time_except(call)) == expected


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=12), st.integers(1, 4))
def test_refused_attempts_are_offset_by_later_successes(
    steps: list[tuple[str, bool]], max_subjects: int
) -> None:
    refused, successes = RefusedAttempts(max_subjects), 0
    expected: dict[str, int] = {}
    for subject, succeeded in steps:
        if succeeded:
            successes += 1
            expected = {one: max(0, count - 1) for one, count in expected.items()}
        else:
            refused.add(subject, successes)
            expected[subject] = expected.pop(subject, 0) + 1
            if len(expected) > max_subjects:
                del expected[next(iter(expected))]
        counts = {one: refused.count(one, successes) for one in "abcd"}
        assert counts == {one: expected.get(one, 0) for one in "abcd"}


def test_attempts_that_are_offset_or_cleared_are_forgotten() -> None:
    refused = RefusedAttempts(9)
    for subject in "aabbcb":
        refused.add(subject, 0)
    refused.drop_offset(1)
    assert list(refused.attempts) == ["a", "c", "b"]
    refused.drop_offset(2)
    assert list(refused.attempts) == ["b"], "the oldest go until one stands"
    refused.clear("b")
    refused.clear("b")
    assert not refused.attempts
    refused.drop_offset(3)
