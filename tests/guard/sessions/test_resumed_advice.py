"""What the model is to read with its next result outlives the process that decided on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policyguard import Admitted, Decision, Guard, Session
from policyguard.guard.calls.pending_advice import PendingAdvice, RebuiltAdvice

POLICY = """
policyguard: 1
name: advice
extends: [core]
bounds: {in_flight: 2}
limits:
  default:
    repeat: {max: 9, advise_at: 2}
rules:
  careful: {tools: [write, send], effect: advise, message: "`{call.tool}` changes something"}
  quoting: {tools: [send], effect: advise, message: "to {call.args.to}", instead: "{call.args.to}"}
  delete: {tools: [bash], commands: ["rm -r"], effect: advise, message: this deletes something}
  deploy: {tools: [deploy], effect: ask}
  wire: {tools: [wire], effect: ask, approval: {count: 2}}
"""
Reopen = Callable[[], Session]


@pytest.fixture
def reopen(tmp_path: Path) -> Reopen:
    """Open the session in a guard of its own, as a process does that answers one event."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, "utf-8")
    opened: list[Guard] = []

    def reopen() -> Session:
        while opened:
            opened.pop().close()
        opened.append(Guard.load(policy, store=tmp_path / "store" / "learned.db"))
        return opened[0].session("s")

    return reopen


def report(session: Session, call: Decision | str) -> str:
    return session.record(call, result="").advice


def test_a_note_comes_with_the_result(reopen: Reopen) -> None:
    noted = reopen().check("write", {"n": 1})
    session = reopen()
    plain = session.check("read")
    assert report(session, plain) == ""
    assert report(reopen(), noted) == (
        "A note on `write`:\n- `write` changes something [rules/careful]"
    )


def test_a_note_of_a_limit_comes_with_the_result(reopen: Reopen) -> None:
    calls = [reopen().check("read", {"n": 1}) for _ in range(2)]
    assert "the same call has been made once" in report(reopen(), calls[1])
    assert report(reopen(), calls[0]) == ""


def test_a_note_comes_with_all_results_of_a_batch(reopen: Reopen) -> None:
    noted = reopen().check("write", {"n": 1}, batch="b")
    other = reopen().check("read", {"n": 2}, batch="b")
    assert "changes something" in report(reopen(), other)
    assert "changes something" in report(reopen(), noted)
    last = reopen().check("read", {"n": 3})
    assert report(reopen(), last) == ""


def test_a_note_of_a_call_that_did_not_run_is_forgotten(reopen: Reopen) -> None:
    session = reopen()
    noted = session.check("write", {"n": 1})
    session.release(noted)
    session = reopen()
    assert session._pipeline.advice.texts == {}


def test_the_latest_notes_are_kept(reopen: Reopen) -> None:
    session = reopen()
    for n in range(3):
        session.check("write", {"n": n})
    assert len(reopen()._pipeline.advice.texts) == 2


def test_a_note_that_quotes_the_call_is_not_written_down(reopen: Reopen, tmp_path: Path) -> None:
    session = reopen()
    noted = session.check("send", {"to": "ann@example.org"})
    assert "ann@example.org" in noted.message
    deleting = session.check("bash", {"command": "rm $SECRET_WORD"})
    assert "not certain what `rm …` does" in deleting.message
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    written = b"".join(path.read_bytes() for path in files)
    assert b"changes something" in written
    assert b"ann@example.org" not in written
    assert b"SECRET_WORD" not in written
    assert report(reopen(), noted) == (
        "A note on `send`:\n- `send` changes something [rules/careful]"
        "\n- a note that quotes the call [rules/quoting]"
    )


def test_a_note_that_older_journals_do_not_have_names_the_entries() -> None:
    guard = Guard.load("core")
    rebuilt = RebuiltAdvice(guard._evaluator)
    rebuilt.follow(Admitted("s", call="c1", tool="write", violations=("rules/a", "rules/b")), None)
    assert rebuilt.pending.take("c1", "", succeeded=True) == "A note on `write`: rules/a, rules/b"


def test_an_answer_comes_with_the_next_result(reopen: Reopen) -> None:
    session = reopen()
    running = [session.check("read", {"n": n}) for n in range(2)]
    asked = session.check("deploy")
    assert session.approve(asked, by="ann")
    expected = (
        "`deploy`, which waited for an approval, is approved by ann: make the same call again"
    )
    assert report(reopen(), running[0]) == expected
    assert report(reopen(), running[1]) == ""


def test_a_denial_comes_with_the_next_result(reopen: Reopen) -> None:
    session = reopen()
    running = session.check("read")
    asked = session.check("deploy")
    assert reopen().deny(asked, by="ann", message="not today")
    expected = "`deploy`, which waited for an approval, was denied by ann: not today"
    assert report(reopen(), running) == expected


def test_an_answer_to_a_call_that_was_made_again_is_not_repeated(reopen: Reopen) -> None:
    session = reopen()
    running = session.check("read")
    assert session.approve(session.check("deploy"), by="ann")
    assert reopen().check("deploy").allowed
    assert report(reopen(), running) == ""


def test_only_the_last_answer_that_is_needed_says_approved(reopen: Reopen) -> None:
    session = reopen()
    running = [session.check("read", {"n": n}) for n in range(2)]
    asked = session.check("wire")
    assert not session.approve(asked, by="ann")
    assert report(reopen(), running[0]) == ""
    assert reopen().approve(asked, by="bo")
    assert "is approved by bo" in report(reopen(), running[1])


def test_a_new_life_of_a_session_begins_without_notes(reopen: Reopen) -> None:
    session = reopen()
    session.check("write", {"n": 1})
    session.end()
    assert reopen()._pipeline.advice.texts == {}


def test_the_oldest_advice_is_dropped_first() -> None:
    pending = PendingAdvice(2)
    for call in ("c1", "c2", "c3"):
        pending.add(call, "", f"advice for {call}", ["rules/a"])
    taken = [pending.take(call, "", succeeded=True) for call in ("c1", "c2", "c3")]
    assert taken == ["", "advice for c2", "advice for c3"]
