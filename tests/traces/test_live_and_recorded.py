"""A guard in a host and a recording of the same run see the same calls.

`recorded_run.WRITERS` lists what a format does not record, or records differently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.evaluator.session_state import SessionState
from policyguard.evaluator.transitions import attempt_from_event
from policyguard.model.event import (
    Admitted,
    Completed,
    Event,
    SessionEnded,
    SessionStarted,
    TurnStarted,
)
from policyguard.traces import Reader, Skipped
from policyguard.traces.importers import IMPORTERS
from tests.traces.recorded_run import BEGIN, END, WRITERS, Run, make_run, nanoseconds

POLICY = """
policyguard: 1
name: live-and-recorded
classify:
  classes:
    - {class: remote, tools: ["mcp__fs__*"]}
    - {class: reading, words: [read, grep]}
    - {class: shell, tools: [bash, make]}
"""


def test_every_format_is_compared() -> None:
    own_format = "policyguard"
    known = {importer.FORMAT for importer in IMPORTERS} - {own_format}
    assert {name.partition(" ")[0] for name in WRITERS} == known


@pytest.mark.parametrize("name", WRITERS)
def test_a_recording_says_what_the_host_said(name: str, tmp_path: Path) -> None:
    writer, kind, differs = WRITERS[name]
    run = make_run(kind)
    file, content = writer(run)
    recording = tmp_path / file
    if file.endswith(".jsonl"):
        recording.write_text("".join(f"{json.dumps(line)}\n" for line in content))
    else:
        recording.write_text(json.dumps(content))
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    trace = Reader().read(recording)
    assert trace.format == name.partition(" ")[0]
    recorded = [item for item in trace if not isinstance(item, Skipped)]
    found = summarize(recorded, Guard.load(policy))
    assert {key for key, value in live(run, policy).items() if found[key] != value} == differs


def test_the_journal_of_a_session_is_its_recording(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    run = make_run("full")
    expected = live(run, policy, store=tmp_path / "state.db")
    (journal,) = tmp_path.rglob("*.jsonl")
    events = [item for item in Reader().read(journal) if not isinstance(item, Skipped)]
    found = summarize(events, Guard.load(policy))
    differs = {key for key, value in expected.items() if found[key] != value}
    assert differs == {"args", "text"}, "the journal keeps fingerprints of contents by default"


def live(run: Run, policy: Path, store: Path | None = None) -> dict[str, Any]:
    """Guard the run in a host, and summarize the events of the guard."""
    now = [BEGIN]
    events: list[Event] = []
    with Guard.load(
        policy, clock=lambda: nanoseconds(now[0]), listener=events.append, store=store
    ) as guard:
        session = guard.session("s", agent="host")
        session.turn()
        for part in (run[:1], run[1:]):
            for call in part:
                now[0] = call.at
                batch = "m" if len(part) > 1 else None
                options = {"server": call.server, "call": call.id, "batch": batch}
                assert session.check(call.name, call.args, **options)  # type: ignore[arg-type]
            for call in part:
                now[0] = call.result_at
                # What a host shows the model is the result, also of a failed call.
                session.record(call.id, result=call.text, exit_code=0 if call.ok else 1)
        now[0] = END
        session.end()
        return summarize(events, guard)


def summarize(events: list[Event], guard: Guard) -> dict[str, Any]:
    """Return what events say of a run, by the names in `WRITERS`."""
    started, ended = events[0], events[-1]
    assert isinstance(started, SessionStarted)
    assert isinstance(ended, SessionEnded)
    turns = [event for event in events if isinstance(event, TurnStarted)]
    calls = [event for event in events if isinstance(event, Admitted)]
    results = {event.call: event for event in events if isinstance(event, Completed)}
    completed = [results[call.call] for call in calls]
    batches = [call.batch for call in calls]
    return {
        "begin": started.at,
        "turn": [turn.at for turn in turns],
        "end": ended.at,
        "call.at": [call.at for call in calls],
        "result.at": [result.at for result in completed],
        "tool": [call.tool for call in calls],
        "server": [call.server for call in calls],
        "host_tool": [call.host_tool for call in calls],
        "host_call": [call.host_call for call in calls],
        "args": [call.args for call in calls],
        "batch": [batches.index(batch) if batch else None for batch in batches],
        "ok": [result.ok for result in completed],
        "text": [result.text for result in completed],
        "classes": [classes_of(call, started, guard) for call in calls],
    }


def classes_of(event: Admitted, started: SessionStarted, guard: Guard) -> list[str]:
    """Return the classes that the event has, or else gets."""
    if event.all_classes:
        return list(event.all_classes)
    evaluator = guard._evaluator
    max_entries = evaluator.bounds.window_entries
    session = SessionState(started, None, evaluator.activation_context, max_entries=max_entries)
    bound_plan = evaluator.prepare(attempt_from_event(session, event, event.at))
    return list(bound_plan.plan.classes)
