"""The journal of a live guard: its events fold to the state of the live run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.compiler import compile_policy
from policyguard.evaluator.evaluator_state import EvaluatorState, TransitionHooks
from policyguard.evaluator.fold import fold
from policyguard.guard import Guard
from policyguard.journal.redaction import Redaction
from policyguard.journal.verify import verify
from policyguard.model.event import Event
from policyguard.model.policy import RedactionMode
from tests.examples import examples
from tests.journal.setup import BEGIN, SECOND, JournalSetup

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


def to_plain(value: Any, known: dict[int, int]) -> Any:
    """Convert a state to plain values."""
    if isinstance(value, dict):
        return {repr(key): to_plain(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [to_plain(item, known) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if type(value).__module__.startswith("policyguard.evaluator"):
        if id(value) in known:
            return f"<{known[id(value)]}>"
        known[id(value)] = len(known)
        kind = type(value)
        names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__slots__", None)
        names = vars(value) if names is None else names
        # Redacted arguments and caches: no limit counts them.
        ignored = {
            "args",
            "targets",
            "activation_context",
            "_bound_plans",
            "plans_by_tool",
            "bound_plan",
            "_activation",
            "_is_completed",
        }
        return {
            name: to_plain(getattr(value, name), known)
            for name in names
            if name not in ignored and hasattr(value, name)
        }
    return value


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, mode=st.sampled_from(["keep", "mask", "hash", "drop"]))
def test_the_journal_folds_to_the_same_state_as_the_live_events(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], mode: RedactionMode
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    (folder / "policy.yaml").write_text(POLICY)
    compiled = compile_policy(folder / "policy.yaml")
    redaction = Redaction(args=mode, results=mode, fingerprinter=compiled.fingerprinter)
    setup = JournalSetup(folder, redactions=redaction.by_event_type)
    now = iter(range(BEGIN, BEGIN * 2, SECOND))
    live: list[Event] = []

    def listen(event: Event) -> None:
        live.append(event)
        setup.journal.write(event)

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
    assert len(live) > len(steps)
    states = EvaluatorState(TransitionHooks(), 9), EvaluatorState(TransitionHooks(), 9)
    for event in live:
        fold(compiled.evaluator, states[0], event)
    for event in setup.journal.read_events("s"):
        fold(compiled.evaluator, states[1], event)
    live_state, read_state = ({"sessions": s.sessions, "ledger": s.ledger} for s in states)
    assert to_plain(read_state, {}) == to_plain(live_state, {})
    assert not verify([setup.folder], anchors=setup.anchors).has_failed
