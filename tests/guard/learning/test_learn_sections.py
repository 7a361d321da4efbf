"""Several `learn` sections that ban the same calls."""

from __future__ import annotations

from pathlib import Path

from policyguard import Guard

POLICY = """
policyguard: 1
name: learn-sections
signatures:
  - {id: bad, pattern: bad, blame: agent, learn: {ban: tool}}
  - {id: wrong, pattern: wrong, blame: agent}
learn: {corroborate: 1, scope: session, ban: tool, reset_on: none}
"""


def test_each_section_bans_what_failed_under_it(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    session = Guard.load(file).session("s")
    running = [session.check("fetch", {"n": n}) for n in range(2)]
    for call, error in zip(running, ("bad", "wrong"), strict=True):
        session.record(call, error=error)
    refused = session.check("fetch", {"n": 2})
    found = [f"constraints/{constraint.id}" for constraint in session.guard.constraints()]
    assert len(found) == 2
    assert sorted(violation.id for violation in refused.violations) == sorted(found)
