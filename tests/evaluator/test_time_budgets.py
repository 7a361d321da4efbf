"""Budgets of time at their edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard


@pytest.mark.parametrize("per", ["session", "turn", "agent", "[session, call.tool]"])
def test_no_time_at_all_admits_no_call(tmp_path: Path, per: str) -> None:
    """Also where the time begins with the first call that is admitted."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: p\nbudgets: {{t: {{time: 0s, per: {per}}}}}\n")
    refused = Guard.load(file).session("s", agent="a").check("x")
    assert not refused.allowed
    assert refused.violations[0].limit == 0
