"""Exceptions in a replay: when a call was made decides; where that is unknown, so is the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.simulate import Replay, ReportSize, load
from policyguard.traces import Reader

from .recording import lines, policy, write

TEXT = """\
rules: {no-push: {tools: [push], when: "true"}}
exceptions: {release: {rules: [no-push], until: %s, when: "call.args.n == 1", reason: r}}
"""


@pytest.mark.parametrize(
    ("until", "timed", "effects"),
    [
        ("2099-01-01", True, ["allow", "block"]),
        ("2026-03-05", True, ["block", "block"]),  # the recording is of the day after
        ("2099-01-01", False, ["unknown", "unknown"]),
    ],
)
def test_the_time_of_the_call_decides(tmp_path: Path, until, timed, effects) -> None:
    calls = [{"tool": "push", "args": {"n": n}} for n in (1, 2)]
    trace = write(tmp_path / "t.jsonl", lines("s", calls, timed=timed))
    compiled = load(policy(tmp_path / "policy.yaml", TEXT % until))
    replay = Replay(compiled, observe=False, labels=None, report_size=ReportSize(timelines=1))
    replay.add(Reader().read(trace))
    figures = replay.finish()
    assert [call.effect for call in figures.sessions[0].timeline] == effects
    used = [(rule.id, rule.hits) for rule in figures.rules if rule.id == "exceptions/release"]
    assert used == ([("exceptions/release", 1)] if effects[0] == "allow" else [])
