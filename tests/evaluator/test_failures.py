"""`failures` beyond the stories: more tools than are kept."""

from __future__ import annotations

from pathlib import Path

from policyguard import Guard

POLICY = """
policyguard: 1
name: failures
bounds: {window_entries: 2}
limits: {default: {failures: {max: 1, by: tool}}}
"""


def test_as_many_tools_are_kept_as_the_bound_allows(tmp_path: Path) -> None:
    """The one that failed longest ago goes first."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    session = Guard.load(file).session("s")
    for tool in ("a", "b"):
        session.record(session.check(tool, {"n": 1}), error="lost")
    assert not session.preview("a", {"n": 1}).allowed
    assert not session.preview("b", {"n": 1}).allowed
    session.record(session.check("c", {"n": 1}), error="lost")
    assert session.preview("a", {"n": 1}).allowed
    assert not session.preview("b", {"n": 1}).allowed
