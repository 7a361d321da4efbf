"""The pack `sentinel` admits the same calls as the original ring buffer (SYSTEMS, §3)."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard, Session
from policyguard.compiler import compile_policy

OVERRIDES = {"search_web": (2, 5), "poll_job_status": (20, 50), "get_user_profile": (5, 15)}


class Ring:
    """The original: refuses a call that occurs `threshold` times among the last `window`."""

    def __init__(self, threshold: int = 3, window: int = 10) -> None:
        self.threshold = threshold
        self.calls: deque[str] = deque(maxlen=window)

    def admits(self, tool: str, args: dict[str, Any]) -> bool:
        call = tool + json.dumps(args, sort_keys=True)
        if self.calls.count(call) >= self.threshold:
            return False
        self.calls.append(call)
        return True


COMPILED = compile_policy("sentinel")


def _session() -> Session:
    return Guard(COMPILED, clock=lambda: 1_772_800_000 * 10**9).session("s")


def _admitted(session: Session, number: int, tool: str, args: dict[str, Any]) -> bool:
    """Return whether the pack admits the call; results differ, so there is no cycle."""
    decision = session.check(tool, args)
    if decision.allowed:
        session.record(decision, result=f"result {number}")
    assert {violation.reason for violation in decision.violations} <= {"repeat"}
    return decision.allowed


ARGS = st.sampled_from([{"q": 1}, {"q": {"b": 2, "a": [{"d": 1, "c": 2}]}}, {}])
TOOLS = st.sampled_from(["read", "write", *OVERRIDES])
STEPS = st.lists(st.tuples(TOOLS, ARGS) | st.just("turn"), max_size=120)


@settings(deadline=None)  # cores are shared
@given(STEPS)
def test_admits_like_the_ring_buffer(steps: list[Any]) -> None:
    session = _session()
    rings: dict[str, Ring] = {}
    for number, step in enumerate(steps):
        if step == "turn":
            session.turn()
            rings.clear()
            continue
        tool, args = step
        ring = rings.setdefault(
            tool if tool in OVERRIDES else "", Ring(*OVERRIDES.get(tool, (3, 10)))
        )
        assert _admitted(session, number, tool, args) is ring.admits(tool, args), (number, step)


@settings(deadline=None)  # cores are shared
@given(st.lists(st.sampled_from("abcd"), min_size=60, max_size=120))
def test_admits_like_the_ring_buffer_with_few_calls(names: list[str]) -> None:
    session, ring = _session(), Ring()
    for number, name in enumerate(names):
        assert _admitted(session, number, "read", {"path": name}) is ring.admits(name, {})


def test_sixteen_threads_share_one_window() -> None:
    session = _session()
    start = threading.Barrier(16)
    admitted: list[bool] = []

    def work() -> None:
        start.wait()
        admitted.extend(session.check("read", {"path": "a"}).allowed for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 800
    assert sum(admitted) == 3


def test_memory_is_bounded_by_the_window() -> None:
    session = _session()
    for number in range(5000):
        session.record(session.check("read", {"path": str(number)}), result=str(number))
    state = session.guard._state.evaluator_state.sessions["s"]
    window = state.turn_trackers["limits/default/repeat"]
    assert len(window.entries) == len(window.by_key) == 10
    cycle = state.turn_trackers["limits/default/cycle"]
    assert len(cycle.entries) <= 2 * 5 * 3


def test_each_refusal_has_a_message_for_the_model() -> None:
    session = _session()
    for number in range(3):
        assert _admitted(session, number, "read", {"path": "a"})
    for _ in range(10):
        decision = session.check("read", {"path": "a"})
        assert not decision.allowed
        assert "`read` was not run" in decision.message
        assert "Instead: " in decision.message
        assert len(decision.message) <= 400
