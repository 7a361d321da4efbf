"""`cycle`: which calls are looked at."""

from __future__ import annotations

from policyguard.evaluator.attempt import WindowEntry
from policyguard.evaluator.limits.cycle import CallSequence


def test_a_sequence_contains_as_many_of_the_last_calls_as_a_round_has() -> None:
    sequence = CallSequence(2)
    assert "a" not in sequence
    sequence.entries += [WindowEntry(name, 0) for name in "abb"]
    assert [name in sequence for name in "abc"] == [False, True, False]
    sequence.entries += [WindowEntry("c", 0)]
    assert [name in sequence for name in "abc"] == [False, True, True]
