"""Result rules in a replay: which fired, and what they make of the calls after them."""

from __future__ import annotations

from pathlib import Path

from policyguard import Guard
from policyguard.report.replay.figures import Figures
from policyguard.simulate import Replay, ReportSize, load
from policyguard.traces import Reader

from .recording import lines, policy, read, write

RULES = """
patterns: {word: 'swordfish-[0-9]+'}
journal: {args: keep, results: keep}
result_rules:
  mask: {finds: [word], effect: redact}
  watched: {tools: [read], when: outcome.data.n > 1, effect: withhold, mode: observe}
  stop: {tools: [leak], finds: [word], effect: halt}
limits: {default: {repeat: {max: 2}}}
"""


def simulate(tmp_path: Path, trace: Path) -> Figures:
    compiled = load(policy(tmp_path / "replayed.yaml", RULES))
    replay = Replay(compiled, observe=False, labels=None, report_size=ReportSize(timelines=1))
    replay.add(Reader().read(trace))
    return replay.finish()


def test_the_rules_that_fired_are_counted(tmp_path: Path) -> None:
    calls = [
        read("/a", text="swordfish-1"),
        read("/b", text='{"n": 2}'),
        read("/c", text='{"n": 1}'),
        {"tool": "leak", "args": {}, "text": "swordfish-2"},
        read("/d"),
    ]
    report = simulate(tmp_path, write(tmp_path / "t.jsonl", lines("s", calls)))
    fired = {(rule.id, rule.effect, rule.observed): rule.hits for rule in report.rules}
    assert fired == {
        ("result_rules/mask", "redact", False): 2,
        ("result_rules/watched", "withhold", True): 3,
        ("result_rules/stop", "halt", False): 1,
        ("session/halted", "halt", False): 1,
    }


def test_an_edited_result_is_unknown_to_a_replay(tmp_path: Path) -> None:
    file = policy(tmp_path / "live.yaml", RULES)
    guard = Guard.load(file, store=tmp_path / "state" / "store.db")
    session = guard.session("s")
    for number in range(4):
        decision = session.check("read", {"path": "/a"})
        assert decision.allowed
        session.record(decision, result=f"swordfish-{number}")  # all become the same text
    session.end()
    guard.close()
    (journal,) = (tmp_path / "state" / "journal").iterdir()
    report = simulate(tmp_path, journal)
    assert report.effects.block == 0
