"""A tool is that of its server: what one answers is not held against another's of the same name."""

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


def fail(session: Session, server: str, blame: str, n: int) -> None:
    decision = session.check("search", {"n": n, "path": "a"}, server=server)
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
def test_what_fails_on_one_server_is_refused_there_alone(guard: Guard, blame: str) -> None:
    session = guard.session("s", project="p")
    for n in (1, 2):
        fail(session, "a", blame, n)
    args = {"n": 3, "path": "a"}
    assert not session.preview("search", args, server="a").allowed
    assert session.preview("search", args, server="b").allowed
    assert session.preview("search", args).allowed


@pytest.mark.parametrize("section", [LOST + "learn: {corroborate: 1, scope: project, ban: tool}"])
def test_what_names_no_server_is_known_as_it_was(guard: Guard) -> None:
    """Ids and keys of what was learned before calls named servers still hold."""
    session = guard.session("s", project="p")
    fail(session, "", "agent", 1)
    (constraint,) = guard.constraints()
    assert (constraint.id, constraint.key, constraint.server) == (
        "k35f7802324d7",
        "tool:search",
        "",
    )
