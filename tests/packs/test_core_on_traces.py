"""`core` on recorded runs: it leaves successful runs alone and stops loops."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import Admitted, Completed, Event, SessionStarted
from policyguard.simulate import Labels, Replay
from policyguard.traces import Reader, Skipped, expand
from tests.examples import slow_but, some

TRACES = Path(
    os.environ.get("POLICYGUARD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces")
)
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"no recorded traces at {TRACES} (POLICYGUARD_TRACES names them)"
)
COPIES = 10
LAST = 60 * 10**9


@pytest.mark.parametrize("mode", slow_but(("enforce",), ["enforce", "observe"]))
def test_core_refuses_nothing_in_successful_runs(mode: str) -> None:
    compiled = compile_policy("core")
    replay = Replay(
        compiled, observe=mode == "observe", labels=Labels.read(TRACES / "labels.jsonl")
    )
    reader = Reader()
    for file in expand([TRACES]):
        for trace in reader.iter_files(file):
            replay.add(trace)
    figures = replay.finish()
    assert figures.harm.succeeded >= 91
    harmed = [run for run in figures.sessions if run.success and run.refused]
    assert [(run.id, run.first_rule, run.first_message) for run in harmed] == []


def _runs() -> dict[tuple[str, str], list[Event]]:
    runs: dict[tuple[str, str], list[Event]] = defaultdict(list)
    reader = Reader()
    for file in expand([TRACES]):
        for trace in reader.iter_files(file):
            for item in trace:
                if not isinstance(item, Skipped):
                    runs[str(trace.path), item.session].append(item)
    return {
        name: events
        for name, events in runs.items()
        if any(isinstance(event, Admitted) for event in events)
    }


def test_core_refuses_a_repeated_last_call() -> None:
    compiled = compile_policy("core")
    runs = _runs()
    missed = []
    tried = some(runs.items(), 2)
    for name, events in tried:
        refused_at = _copies_until_refused(ReplayGuard(compiled), events)
        if refused_at is None:
            missed.append((*name, _last(events)[0].tool))
    assert len(runs) >= 120
    assert len(missed) <= len(tried) / 100, missed


def _last(events: list[Event]) -> tuple[Admitted, Completed]:
    call = next(event for event in reversed(events) if isinstance(event, Admitted))
    for event in events:
        if isinstance(event, Completed) and event.call == call.call:
            return call, event
    # The run was cut off before the result, so the agent has seen none.
    return call, Completed(call.session, call.at, call.call, None, "unknown")


def _copies_until_refused(guard: ReplayGuard, events: list[Event]) -> int | None:
    started = next((event for event in events if isinstance(event, SessionStarted)), None)
    session = guard.start_session(started or SessionStarted(events[0].session))
    call, result = _last(events)
    answered = False
    for event in events:
        if not isinstance(event, SessionStarted) and type(event).__name__ != "SessionEnded":
            session.apply(event)
            answered = answered or (isinstance(event, Completed) and event.call == call.call)
    if not answered:
        session.record(result)
    for copy in range(COPIES):
        at = None if call.at is None else call.at + (copy + 1) * LAST
        again = msgspec.structs.replace(call, call=f"copy{copy}", at=at)
        decision = session.check(again)
        if not decision.allowed:
            return copy
        session.record(msgspec.structs.replace(result, call=f"copy{copy}", at=at))
    return None
