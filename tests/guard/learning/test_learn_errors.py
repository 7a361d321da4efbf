"""Expressions of `learn` that have no value for a call."""

from __future__ import annotations

from pathlib import Path

from policyguard import Guard
from policyguard.model.outcome import Recorded

POLICY = """
policyguard: 1
name: learn-errors
signatures: [{id: bad, pattern: bad, blame: agent}]
learn: {corroborate: 2, scope: session, ban: tool, count_by: call.args.host, reset_on: none}
"""


def test_failure_without_a_value_for_count_by_is_reported_and_a_success_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    session = Guard.load(file).session("s")

    def record(**result: str) -> Recorded:
        return session.record(session.check("fetch", {"path": "/"}), **result)

    errors = [record(**result).errors for result in ({"error": "bad"}, {"result": "done"})]
    assert [[error.id for error in found] for found in errors] == [["learn/count_by"], []]
