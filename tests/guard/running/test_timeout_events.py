"""What is told of a call that has run out of time, and to whom."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from policyguard import CallRefused, Session, ToolTimeoutError
from policyguard.journal.format import decode
from policyguard.model.event import Completed, Ended
from tests.guard.running.time_limits import (
    PATIENCE,
    Open,
    Told,
    stuck,
)


def test_the_errors_can_go_to_another_process(opened: Open, gate: threading.Event) -> None:
    session = opened("rules: {r: {tools: [bad], when: 'true'}}\n")
    with pytest.raises(ToolTimeoutError) as late:
        session.run("slow", {}, stuck(gate))
    with pytest.raises(CallRefused) as refused:
        session.run("bad", {}, stuck(gate))
    for error in (late.value, refused.value):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - it is our own
        assert type(copy) is type(error)
        assert (str(copy), copy.decision) == (str(error), error.decision)


def test_the_journal_has_the_timeout_and_the_end_without_what_is_secret(
    opened: Open, told: Told, gate: threading.Event, tmp_path: Path
) -> None:
    more = "journal: {results: keep, redact: [key]}\npatterns: {key: 'sk-[0-9]+'}\n"
    session = opened(more, store=tmp_path / "state" / "store.db")
    for result in ("sk-12345", ValueError("sk-12345")):
        with pytest.raises(ToolTimeoutError):
            session.run("slow", {}, stuck(gate, result))
    gate.set()
    told.wait(Ended, 2)
    journal = session.guard._journal
    assert journal is not None
    lines = journal.path_of("a").read_bytes().splitlines()
    assert not any(b"sk-12345" in line for line in lines)
    events = [decode(line) for line in lines]
    assert [one.still_running for one in events if isinstance(one, Completed)] == [True, True]
    ends = [one for one in events if isinstance(one, Ended)]
    assert {(one.text, one.error) for one in ends} == {("[key]", None), ("", "ValueError: [key]")}
    session.end()


def test_a_closed_session_is_told_no_end(
    session: Session, told: Told, gate: threading.Event
) -> None:
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, stuck(gate))
    (worker,) = (one for one in threading.enumerate() if one.name == "policyguard c1")
    session.end()
    again = session.guard.session("a")
    gate.set()
    worker.join(PATIENCE)
    assert not worker.is_alive()
    assert told.of(Ended) == []
    assert again.check("slow").allowed
