"""Recorded runs that are replayed many times: read once, or only some of their sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.suggest import replayed_sessions
from policyguard.simulate.suggest.override_layer import render_layer
from policyguard.simulate.suggest.replayed_sessions import RecordedRuns
from policyguard.simulate.suggest.session_results import SessionResult
from tests.simulate.recording import lines, policy, read, write

STRICT = "rules: {no-b: {tools: [read], when: 'call.args.path == \"/b\"', message: no}}"
TIGHT = "budgets: {all: {calls: 3, per: session}}"


def _traces(folder: Path) -> tuple[Path, ...]:
    return (
        write(
            folder / "a.jsonl",
            lines("one", [read("/a"), read("/b")], success=True),
            lines("two", [read("/a")] * 2, success=False),
        ),
        write(
            folder / "b.jsonl",
            lines("parent", [read("/a")] * 2, success=True, closed=False),
            lines("child", [read("/a")] * 2, parent="parent"),
        ),
        write(folder / "c.jsonl", lines("one", [read("/b")], success=False)),
    )


def _runs(files: tuple[Path, ...], policy: Path) -> RecordedRuns:
    job = Job(policies=(str(policy),), files=files)
    return RecordedRuns(job, JobInputs.load(job))


def _facts(results: list[SessionResult]) -> list[tuple[object, ...]]:
    return [(result.key, result.success, result.refused_by) for result in results]


def test_files_are_read_once_if_they_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = policy(tmp_path / "p.yaml", STRICT)
    files = _traces(tmp_path)
    small = _runs(files, rules)
    first = small.replay_under()
    assert [result.key for result in first] == [
        *((0, 0, "one"), (0, 0, "two"), (1, 0, "parent"), (1, 0, "child"), (2, 0, "one"))
    ]
    with monkeypatch.context() as patched:
        patched.setattr(replayed_sessions, "_MAX_KEPT_CHARS", 3000)
        large = _runs(files, rules)
        assert large.replay_under() == first
        assert large.replay_under() == first
    for file in files:
        file.unlink()
    assert small.replay_under() == first
    assert large.replay_under() == []


def test_a_layer_over_policies_that_have_changed_is_refused(tmp_path: Path) -> None:
    rules = policy(tmp_path / "p.yaml", STRICT)
    runs = _runs(_traces(tmp_path), rules)
    layer = render_layer("proposed", [str(rules)], {})
    rules.write_text("rules: none of them\n")
    with pytest.raises(ValueError, match="the policies have changed since the layer was made"):
        runs.replay_under(layer)


def test_some_sessions_replay_as_they_do_among_all(tmp_path: Path) -> None:
    files = _traces(tmp_path)
    for name, rules in (("strict", STRICT), ("tight", TIGHT)):
        recorded = _runs(files, policy(tmp_path / f"{name}.yaml", rules))
        everything = recorded.replay_under()
        for chosen in (
            [(0, 0, "two")],
            [(0, 0, "one"), (2, 0, "one")],
            [(1, 0, "child")],
            [(1, 0, "parent")],
        ):
            found = recorded.replay_under("", chosen)
            wanted = [result for result in everything if result.key in chosen]
            assert _facts([result for result in found if result.key in chosen]) == _facts(wanted)
            traces = {index for index, _, _ in chosen}
            assert {result.key[0] for result in found} == traces
    assert len(recorded.replay_under("", [(0, 0, "two")])) == 1
    # A child charges its parent's budget, so they are replayed together.
    assert len(recorded.replay_under("", [(1, 0, "child")])) == 2


def test_calls_are_counted_from_turn_to_turn(tmp_path: Path) -> None:
    turns = [{"event": "started"}]
    for calls in (2, 3, 1):
        turns.append({"event": "turn_started"})
        turns += [{"event": "admitted", "call": f"{calls}.{n}", "tool": "t"} for n in range(calls)]
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps({**one, "session": "s"}) + "\n" for one in turns))
    assert _runs((trace,), policy(tmp_path / "p.yaml", "")).max_calls_per_turn() == {(0, 0, "s"): 3}
