"""The pack `loop-controller` escalates like its original and never refuses (SYSTEMS, §4)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, PolicyError, Session
from policyguard.compiler import compile_policy
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Event

MINUTE = 60 * 10**9
REASONS = {
    "WALL_CLOCK_EXCEEDED": "budgets/turn-wall-clock",
    "MAX_STEPS_EXCEEDED": "budgets/turn-steps",
    "REPEATED_TOOL_CALL": "limits/default/repeat",
}


class Controller:
    """The original for one call per batch and calls that take no time."""

    def __init__(self) -> None:
        self.steps = 0
        self.elapsed = 0
        self.counts: Counter[str] = Counter()

    def escalates(self, call: str, waited: int) -> str | None:
        self.elapsed += waited
        self.steps += 1
        self.counts[call] += 1
        if self.elapsed > MINUTE:
            return "WALL_CLOCK_EXCEEDED"
        if self.steps >= 12:
            return "MAX_STEPS_EXCEEDED"
        return "REPEATED_TOOL_CALL" if max(self.counts.values()) >= 3 else None


COMPILED = compile_policy("loop-controller")


class World:
    """A session with a clock and its events."""

    def __init__(self) -> None:
        self.now = 1_772_800_000 * 10**9
        self.events: list[Event] = []
        guard = Guard(COMPILED, clock=lambda: self.now)
        guard.on(self.events.append)
        self.session: Session = guard.session("s")

    def call(self, name: str, waited: int = 0) -> list[str]:
        """Make a call and return the entries that fired."""
        self.now += waited
        decision = self.session.check("fetch", {"page": name})
        assert decision.effect in (Effect.ALLOW, Effect.ADVISE)
        recorded = self.session.record(decision, result=f"page {name}")
        assert recorded.text.startswith(f"page {name}")
        assert bool(recorded.advice) is bool(decision.violations)
        return [violation.id for violation in decision.violations]


STEPS = st.lists(
    # The original escalates after more than a minute, the pack after a minute.
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0, 7 * 10**9, 31 * 10**9])),
    max_size=20,
)


@settings(deadline=None)  # cores are shared
@given(st.lists(STEPS, max_size=3))
def test_escalates_like_the_controller(
    turns: list[list[tuple[str, int]]],
) -> None:
    world = World()
    for steps in turns:
        world.session.turn()
        controller, escalated = Controller(), False
        for name, waited in steps:
            reason, said = controller.escalates(name, waited), world.call(name, waited)
            if reason is not None and not escalated:
                assert REASONS[reason] in said
            escalated = escalated or reason is not None
            assert escalated or not said
            if controller.steps >= 12 or controller.elapsed > MINUTE:
                assert said, "the note is on every later result"


def test_escalations_are_events(tmp_path: Path) -> None:
    guard = Guard.load("loop-controller", store=tmp_path / "store.db")
    session = guard.session("s")
    for number in range(12):
        session.record(session.check("fetch", {"page": number}), result="x")
    session.end()
    (journal,) = (tmp_path / "journal").glob("*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    admitted = [line for line in lines if line.get("event") == "admitted"]
    escalated = [
        (step, line["tool"], line["violations"])
        for step, line in enumerate(admitted, 1)
        if line.get("effect") == "advise"
    ]
    assert escalated == [(12, "fetch", ["budgets/turn-steps"])]


def test_listeners_receive_escalations() -> None:
    world = World()
    for _ in range(4):
        world.call("a")
    told = [event for event in world.events if isinstance(event, Admitted) and event.violations]
    assert [(event.effect, event.violations) for event in told] == [
        ("advise", ("limits/default/repeat",)),
        ("advise", ("limits/default/repeat",)),
    ]


@pytest.mark.parametrize("value", ["0", "-3", "twelve", ""])
def test_invalid_environment_value_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OLAVA_MAX_STEPS", value)
    with pytest.raises(PolicyError, match="OLAVA_MAX_STEPS"):
        Guard.load("loop-controller")
