"""What a new turn resets, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.guard.session import Session


def load(folder: Path, learn: str) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: turns\n"
        "signatures: [{id: wrong, pattern: wrong, blame: agent}]\n"
        f"learn: {{corroborate: 2, {learn}}}\n"
    )
    return Guard.load(file)


def attempt_and_fail(session: Session) -> bool:
    """Record a failure if the call is allowed; return whether it was."""
    decision = session.check("migrate", {"to": 3})
    if decision.allowed:
        session.record(decision, error="wrong: no database")
    return decision.allowed


def test_new_turn_admits_one_more_failure_of_a_banned_call(tmp_path: Path) -> None:
    session = load(tmp_path, "scope: session").session("s")
    assert [attempt_and_fail(session) for _ in range(4)] == [True, True, False, False]
    session.turn()
    assert [attempt_and_fail(session) for _ in range(3)] == [True, False, False]
    session.turn()
    assert attempt_and_fail(session)


def test_failures_of_different_turns_do_not_add_up(tmp_path: Path) -> None:
    session = load(tmp_path, "scope: session").session("s")
    assert attempt_and_fail(session)
    session.turn()
    assert [attempt_and_fail(session) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "learn", ["scope: project", "scope: global", "scope: session, reset_on: none"]
)
def test_constraints_of_wider_scopes_survive_a_turn(tmp_path: Path, learn: str) -> None:
    session = load(tmp_path, learn).session("s", project="p")
    assert [attempt_and_fail(session) for _ in range(3)] == [True, True, False]
    session.turn()
    assert not attempt_and_fail(session)


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        ("per: turn, until: turn", True),
        ("per: turn, until: progress", True),
        ("per: turn, until: session", False),
        ("until: turn", False),
    ],
)
def test_a_late_failure_of_an_earlier_turn_bans_nothing_in_this_one(
    tmp_path: Path, limit: str, allowed: bool
) -> None:
    """Unless the ban would have lasted, or failures of all turns count."""
    file = tmp_path / "policy.yaml"
    default = f"failures: {{max: 2, refuse: tool, {limit}}}"
    file.write_text(f"policyguard: 1\nname: turns\nlimits: {{default: {{{default}}}}}\n")
    session = Guard.load(file).session("s")
    first, late = (session.check("migrate", {"to": number}) for number in range(2))
    session.record(first, error="down")
    session.turn()
    session.record(late, error="down")
    assert session.check("migrate", {"to": 3}).allowed is allowed


def test_core_admits_a_failed_call_again_in_a_new_turn() -> None:
    session = Guard.load("core").session("s")
    for _ in range(2):
        decision = session.check("bash", {"command": "make migrate"})
        session.record(decision, error="Error: database 'app' does not exist")
    assert not session.check("bash", {"command": "make migrate"}).allowed
    session.turn()
    assert session.check("bash", {"command": "make migrate"}).allowed
