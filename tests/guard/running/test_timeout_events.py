"""Events and errors of calls that timed out."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from policyguard import CallRefused, Session, ToolTimeoutError
from policyguard.journal.format import decode
from policyguard.model.event import CallEnded, Completed
from tests.guard.running.time_limits import (
    TIMEOUT,
    EventLog,
    OpenSession,
    make_stuck_tool,
)


def test_errors_can_be_pickled(open_session: OpenSession, gate: threading.Event) -> None:
    session = open_session("rules: {r: {tools: [bad], when: 'true'}}\n")
    with pytest.raises(ToolTimeoutError) as timed_out:
        session.run("slow", {}, make_stuck_tool(gate))
    with pytest.raises(CallRefused) as refused:
        session.run("bad", {}, make_stuck_tool(gate))
    for error in (timed_out.value, refused.value):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own data
        assert type(copy) is type(error)
        assert (str(copy), copy.decision) == (str(error), error.decision)


def test_journal_holds_the_timeout_and_the_end_redacted(
    open_session: OpenSession, log: EventLog, gate: threading.Event, tmp_path: Path
) -> None:
    extra = "journal: {results: keep, redact: [key]}\npatterns: {key: 'sk-[0-9]+'}\n"
    session = open_session(extra, store=tmp_path / "state" / "store.db")
    for result in ("sk-12345", ValueError("sk-12345")):
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, make_stuck_tool(gate, result))
    gate.set()
    log.wait(CallEnded, 2)
    journal = session.guard._journal
    assert journal is not None
    lines = journal.path_of("a").read_bytes().splitlines()
    assert not any(b"sk-12345" in line for line in lines)
    events = [decode(line) for line in lines]
    assert [event.still_running for event in events if isinstance(event, Completed)] == [True, True]
    ended_events = [event for event in events if isinstance(event, CallEnded)]
    assert {(event.text, event.error) for event in ended_events} == {
        ("[key]", None),
        ("", "ValueError: [key]"),
    }
    session.end()


def test_ended_session_receives_no_end_event(
    session: Session, log: EventLog, gate: threading.Event
) -> None:
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate))
    (worker,) = (event for event in threading.enumerate() if event.name == "policyguard c1")
    session.end()
    reopened = session.guard.session("a")
    gate.set()
    worker.join(TIMEOUT)
    assert not worker.is_alive()
    assert log.of_type(CallEnded) == []
    assert reopened.check("slow").allowed
