"""What a new turn opens again, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.guard.session import Session


def guard(folder: Path, learn: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: turns\n"
        "signatures: [{id: wrong, pattern: wrong, blame: agent}]\n"
        f"learn: {{corroborate: 2, {learn}}}\n"
    )
    return Guard.load(file)


def fails(session: Session) -> bool:
    """Whether the call is let through, which then fails."""
    decision = session.check("migrate", {"to": 3})
    if decision.allowed:
        session.record(decision, error="wrong: no database")
    return decision.allowed


def test_what_a_session_has_learned_is_open_again_and_closes_at_once(tmp_path: Path) -> None:
    session = guard(tmp_path, "scope: session").session("s")
    assert [fails(session) for _ in range(4)] == [True, True, False, False]
    session.turn()
    assert [fails(session) for _ in range(3)] == [True, False, False]
    session.turn()
    assert fails(session)


def test_failures_before_a_turn_do_not_add_up_with_those_after_it(tmp_path: Path) -> None:
    session = guard(tmp_path, "scope: session").session("s")
    assert fails(session)
    session.turn()
    assert [fails(session) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "learn", ["scope: project", "scope: global", "scope: session, reset_on: none"]
)
def test_what_is_learned_for_more_than_the_session_stays(tmp_path: Path, learn: str) -> None:
    session = guard(tmp_path, learn).session("s", project="p")
    assert [fails(session) for _ in range(3)] == [True, True, False]
    session.turn()
    assert not fails(session)


def test_core_runs_again_what_the_person_asks_for_again() -> None:
    session = Guard.load("core").session("s")
    for _ in range(2):
        decision = session.check("bash", {"command": "make migrate"})
        session.record(decision, error="Error: database 'app' does not exist")
    assert not session.check("bash", {"command": "make migrate"}).allowed
    session.turn()
    assert session.check("bash", {"command": "make migrate"}).allowed
