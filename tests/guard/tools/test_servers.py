"""Tools of the same name on different servers are separate tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, Session

LOST = "signatures: [{id: lost, pattern: lost, blame: agent}]\n"
OUTAGE = "{outage: {max: 2, within: 1m, cooldown: 1m}}"


@pytest.fixture
def guard(tmp_path: Path, section: str) -> Guard:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: p\nclassify: {{targets: [path]}}\n{section}\n")
    return Guard.load(file, cache=False)


def record_failure(session: Session, server: str, blame: str, number: int) -> None:
    decision = session.check("search", {"n": number, "path": "a"}, server=server)
    assert decision.allowed
    session.record(decision, error="lost", blame=blame)


@pytest.mark.parametrize(
    ("section", "blame"),
    [
        (LOST + "learn: {corroborate: 2, scope: project, ban: tool}", "agent"),
        (
            LOST + "learn: {corroborate: 2, scope: project, "
            "parameters: {lost: {of: [n], direction: up}}}",
            "agent",
        ),
        ("limits: {default: {failures: {max: 2, same: error}}}", "agent"),
        (LOST + "limits: {default: {failures: {max: 2, signature: lost}}}", "agent"),
        ("limits: {default: {repeat: {max: 2, same: error}}}", "agent"),
        ("limits: {default: {repeat: {max: 2, same: target}}}", "agent"),
        (
            "limits: {default: {repeat: {max: 2, same: target, refuse: tool, until: session}}}",
            "agent",
        ),
        (f"limits: {{default: {OUTAGE}}}", "harness"),
        (f"limits: {{tools: {{'sea*': {OUTAGE}}}}}", "harness"),
    ],
)
def test_failures_on_one_server_refuse_calls_to_that_server_only(guard: Guard, blame: str) -> None:
    session = guard.session("s", project="p")
    for number in (1, 2):
        record_failure(session, "a", blame, number)
    args = {"n": 2, "path": "a"}
    assert not session.preview("search", args, server="a").allowed
    assert session.preview("search", args, server="b").allowed
    assert session.preview("search", args).allowed


@pytest.mark.parametrize("section", [LOST + "learn: {corroborate: 1, scope: project, ban: tool}"])
def test_ids_of_constraints_without_a_server_are_unchanged(guard: Guard) -> None:
    """Constraints learned before calls had servers still apply."""
    session = guard.session("s", project="p")
    record_failure(session, "", "agent", 1)
    (constraint,) = guard.constraints()
    assert (constraint.id, constraint.key, constraint.server) == (
        "k35f7802324d7",
        "tool:search",
        "",
    )
