"""The journal of a live guard: what is read back folds to the state that was lived."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.compiler import compile_policy
from policyguard.evaluator.fold import fold
from policyguard.evaluator.session_state import EngineState
from policyguard.guard import Guard
from policyguard.journal.redaction import Redaction
from policyguard.journal.verify import verify
from policyguard.model.event import Event
from policyguard.model.policy import RedactionMode
from tests.journal.world import BEGIN, SECOND, World

POLICY = """
policyguard: 1
name: journalled
limits:
  default:
    repeat: {max: 3, window: 10, same: call_and_result}
    failures: {max: 4}
budgets:
  calls: {calls: 12}
  slow: {calls: 4, within: 10s}
  money: {cost: 5}
rules:
  no-rm: {tools: [bash], when: 'call.args.command == "rm"', effect: halt}
"""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bash", "read"]),
        st.sampled_from(["ls", "rm", "a", "b"]),
        st.sampled_from(["ok", "error", "nothing", "release", "turn", "spend", "grant"]),
    ),
    max_size=25,
)


def seen(value: Any, known: dict[int, int]) -> Any:
    """All that a state holds, as plain values."""
    if isinstance(value, dict):
        return {repr(key): seen(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [seen(item, known) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if type(value).__module__.startswith("policyguard.evaluator"):
        if id(value) in known:
            return f"<{known[id(value)]}>"
        known[id(value)] = len(known)
        names = getattr(value, "__struct_fields__", None) or type(value).__slots__
        # What was said, and what is found again when it is wanted: nothing is counted by it.
        hidden = {"args", "targets", "ground", "_walks", "known", "walk", "_view", "_over"}
        return {
            name: seen(getattr(value, name), known)
            for name in names
            if name not in hidden and hasattr(value, name)
        }
    return value


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, kept=st.sampled_from(["keep", "mask", "hash", "drop"]))
def test_the_journal_folds_to_the_same_state_as_the_events_that_were_lived(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], kept: RedactionMode
) -> None:
    folder = tmp_path_factory.mktemp("world")
    (folder / "policy.yaml").write_text(POLICY)
    compiled = compile_policy(folder / "policy.yaml")
    redact = Redaction(args=kept, results=kept, fingerprinter=compiled.fingerprinter)
    world = World(folder, redact=redact.by_event_type)
    now = iter(range(BEGIN, BEGIN * 2, SECOND))
    lived: list[Event] = []

    def listen(event: Event) -> None:
        lived.append(event)
        world.journal.write(event)

    guard = Guard(compiled, clock=lambda: next(now), listener=listen)
    session = guard.session("s", agent="coder")
    for tool, word, then in steps:
        name = "command" if tool == "bash" else "path"
        decision = session.check(tool, {name: word})
        if then == "turn":
            session.turn()
        elif then == "spend":
            session.spend(tokens=10, cost=0.5)
        elif then == "grant":
            session.grant("calls", 1, by="ana")
        elif decision.allowed and then == "release":
            session.release(decision)
        elif decision.allowed and then != "nothing":
            error = "boom" if then == "error" else None
            session.record(decision, result=f"{word} done", error=error, cost=0.1)
    assert len(lived) > len(steps)
    states = EngineState(), EngineState()
    for event in lived:
        fold(compiled.evaluator, states[0], event)
    for event in world.journal.read_events("s"):
        fold(compiled.evaluator, states[1], event)
    assert seen(states[1], {}) == seen(states[0], {})
    assert not verify([world.folder], anchors=world.anchors).has_failed
