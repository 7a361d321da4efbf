"""Calls with close numbers: how many are remembered."""

from __future__ import annotations

from policyguard.evaluator.tolerant_calls import TolerantCalls


def test_the_oldest_of_too_many_calls_are_forgotten() -> None:
    calls = TolerantCalls()
    for loose in ("a", "b", "a", "c"):
        calls.remember(f"{loose}1", loose, (1.0,), max_entries=2)

    def find(loose: str) -> str:
        return calls.match("new", loose, (1.0,), lambda known, given: known == given)

    assert [find(loose) for loose in "abc"] == ["a1", "new", "c1"]


def test_the_oldest_numbers_of_one_call_are_forgotten() -> None:
    calls = TolerantCalls()
    for number in (1.0, 2.0, 3.0):
        calls.remember(f"a{number}", "a", (number,), max_entries=2)

    def find(number: float) -> str:
        return calls.match("new", "a", (number,), lambda known, given: known == given)

    assert [find(number) for number in (1.0, 2.0, 3.0)] == ["new", "a2.0", "a3.0"]
