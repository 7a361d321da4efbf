"""End to end: recorded runs through the real guard, to a policy that the real compiler accepts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from policyguard.compiler import compile_policy
from policyguard.lint import lint_paths
from policyguard.report.suggest.figures import Suggestion
from policyguard.report.suggest.rendering import render_signatures, render_yaml
from policyguard.simulate import load
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.suggest import Request, SuggestError, suggest
from policyguard.simulate.suggest.certification import split_runs
from policyguard.simulate.suggest.override_layer import Entries, render_layer
from policyguard.simulate.suggest.replayed_sessions import RecordedRuns
from policyguard.simulate.suggest.search_space import (
    build_search_space,
    changed_entries,
    covers_entry,
)
from policyguard.simulate.suggest.session_results import SessionResult
from policyguard.simulate.suggest.suggestion import _Search
from policyguard.simulate.suggest.sweep import Sweep
from tests.simulate.recording import failed, lines, policy, read, write

ONE_LIMIT = "limits: {default: {repeat: {max: 4, window: all, same: call}}}"


def _suggested(trace: Path, policies: str | Path = "core", **asked: object) -> Suggestion:
    asked = {"max_harm": 0.05, "labels": None, "folder": trace.parent, **asked}
    return suggest(Request(policies=(str(policies),), files=(trace,), **asked))  # type: ignore[arg-type]


def _repeating(name: str, times: int, *, success: bool | None) -> Iterable[str]:
    """A run that reads one file so many times, and some others."""
    calls = [read("/same")] * times + [read(f"/{number}") for number in range(3)]
    return lines(name, calls, success=success)


def _runs(file: Path, good: Iterable[int], bad: Iterable[int], unknown: int = 0) -> Path:
    sessions = [_repeating(f"g{n}", times, success=True) for n, times in enumerate(good)]
    sessions += [_repeating(f"b{n}", times, success=False) for n, times in enumerate(bad)]
    sessions += [_repeating(f"u{n}", 5, success=None) for n in range(unknown)]
    return write(file, *sessions)


def test_a_limit_is_tightened_as_far_as_the_runs_allow(tmp_path: Path) -> None:
    trace = _runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20, unknown=3)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", ONE_LIMIT))
    assert suggestion.guaranteed
    assert suggestion.chosen is not None
    (change,) = suggestion.chosen.changes
    assert (change.entry, change.new["max"], change.old["max"]) == ("limits/default/repeat", 3, 4)
    assert (suggestion.chosen.held_out.harm.count, suggestion.chosen.held_out.catch.count) == (
        0,
        10,
    )
    assert (suggestion.sessions, suggestion.unlabelled, suggestion.chosen.unlabelled.count) == (
        123,
        3,
        3,
    )
    assert "repeat: {max: 3, window: all, same: call}" in suggestion.yaml
    # As it stands, the settings side by side in both halves, and the proposed policy.
    assert suggestion.replays == 4


@pytest.mark.slow
def test_options_side_by_side_refuse_what_each_refuses_alone(tmp_path: Path) -> None:
    good, bad = [2, 3, 4, 5, 6] * 8, [5, 9, 14, 20] * 5
    trace = _runs(tmp_path / "t.jsonl", good, bad)
    limits = """
limits:
  default:
    repeat: [{max: 4, same: call}, {max: 8, window: all, same: call}]
  tools:
    read: {repeat: {max: 6, same: call}, cycle: {max: 3}}
budgets: {reads: {calls: 12, tools: [read]}}
"""
    compiled = load([str(policy(tmp_path / "p.yaml", limits))])
    job = Job(policies=(str(tmp_path / "p.yaml"),), files=(trace,))
    runs = RecordedRuns(job, JobInputs.load(job))
    base = runs.replay_under()
    axes = build_search_space(compiled, {"session": [5, 9, 12]})

    def replay(entries: Entries) -> list[SessionResult]:
        return runs.replay_under(render_layer("q", [str(tmp_path / "p.yaml")], entries))

    def refused(sessions: list[SessionResult], id_: str) -> int:
        return sum(
            1 << index
            for index, session in enumerate(sessions)
            if any(covers_entry(id_, entry) for entry in session.refused_by)
        )

    explored = Sweep(axes, base, frozenset(range(len(base)))).run(replay)
    for index, axis in enumerate(axes):
        for option in range(1, len(axis.options)):
            alone = refused(replay(changed_entries([(axis, option)])), axis.id)
            assert explored.masks[index][option] == alone, (axis.id, option)
    assert len({mask for masks in explored.masks for mask in masks}) > 5

    def replay_few(entries: Entries) -> list[SessionResult] | None:
        return replay(entries) if len(str(entries)) < 200 else None

    # Options that are no policy together are replayed in smaller groups.
    assert Sweep(axes, base, frozenset(range(len(base)))).run(replay_few).masks == explored.masks


@pytest.mark.parametrize(
    ("hidden", "times"),
    [
        (False, 5),
        (True, 5),
        pytest.param(False, 20, marks=pytest.mark.slow),
        pytest.param(True, 20, marks=pytest.mark.slow),
    ],
    ids=["few whole", "few redacted", "whole", "redacted"],
)
def test_candidates_side_by_side_are_what_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool, times: int
) -> None:
    """If the proposed one does not refuse the same when replayed whole, all are replayed so."""
    good, bad = [2, 3, 4, 5, 6] * times, [5, 9, 14, 20] * (times // 2)
    trace = _runs(tmp_path / "t.jsonl", good, bad, unknown=3)
    if hidden:
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        for event in events[::7]:
            if "args" in event:
                event["args"] = None
        trace.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    limits = """
limits: {default: {repeat: {max: 9, same: call}, cycle: {max: 3}}}
budgets: {reads: {calls: 30, tools: [read]}}
"""
    file = policy(tmp_path / "p.yaml", limits)
    apart = _suggested(trace, file, max_harm=0.5)
    monkeypatch.setattr(_Search, "_is_confirmed", lambda *_: False)
    whole = _suggested(trace, file, max_harm=0.5)
    assert len(whole.candidates) > 2
    assert apart.candidates == whole.candidates
    assert apart.chosen == whole.chosen
    assert apart.yaml == whole.yaml
    monkeypatch.setattr(_Search, "_replay_apart", lambda *_: None)
    assert _suggested(trace, file, max_harm=0.5).candidates == whole.candidates


def test_candidates_are_replayed_whole_if_the_proposed_one_refuses_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = _runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20)
    file = policy(tmp_path / "p.yaml", ONE_LIMIT)
    apart = _suggested(trace, file)
    replay_apart = _Search._replay_apart

    def replay_wrongly(self: _Search, *arguments: Any) -> Any:
        for combination, (*others, last) in replay_apart(self, *arguments) or ():
            yield combination, [*others, last._replace(refused=not last.refused)]

    monkeypatch.setattr(_Search, "_replay_apart", lambda *_: [*replay_wrongly(*_)])
    whole = _suggested(trace, file)
    assert whole.candidates == apart.candidates
    assert whole.chosen == apart.chosen
    assert whole.replays > apart.replays


def test_entries_in_observe_mode_refuse_nothing(tmp_path: Path) -> None:
    rule = "rules: {seen: {tools: [read], when: 'true', mode: observe}}"
    trace = _runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", f"{ONE_LIMIT}\n{rule}"))
    assert suggestion.guaranteed
    assert "max: 3" in suggestion.yaml


def test_each_step_is_reported(tmp_path: Path) -> None:
    trace = _runs(tmp_path / "t.jsonl", [2] * 40, [4] * 20)
    steps: list[str] = []
    file = str(policy(tmp_path / "p.yaml", ONE_LIMIT))
    suggest(Request(policies=(file,), files=(trace,), labels=None, max_harm=0.05), steps.append)
    assert steps[0] == "replaying the policy as it stands"
    settings = [step for step in steps if step.startswith("replaying setting")]
    assert settings == [f"replaying setting {number}" for number in range(1, len(settings) + 1)]
    assert settings


def test_a_policy_in_observe_mode_is_replayed_as_if_enforced(tmp_path: Path) -> None:
    trace = _runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", f"mode: observe\n{ONE_LIMIT}"))
    assert suggestion.guaranteed
    assert "max: 3" in suggestion.yaml


def test_a_harmful_policy_is_loosened(tmp_path: Path) -> None:
    trace = _runs(tmp_path / "t.jsonl", [5] * 100, [9] * 20)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", ONE_LIMIT))
    assert suggestion.guaranteed
    assert suggestion.chosen is not None
    settings = {one.entry: one.new for one in suggestion.chosen.changes}
    assert settings["limits/default/repeat"]["max"] in (5, 6, 8)
    assert suggestion.chosen.held_out.harm.count == 0
    assert suggestion.chosen.held_out.catch.count == 10


def test_a_budget_comes_from_the_successful_runs(tmp_path: Path) -> None:
    good = [
        lines(f"g{n}", [read(f"/{n}/{c}", f"{n} {c}") for c in range(5)], success=True)
        for n in range(100)
    ]
    bad = [
        lines(f"b{n}", [read(f"/{n}/{c}", f"{n} {c}") for c in range(40)], success=False)
        for n in range(9)
    ]
    trace = write(tmp_path / "t.jsonl", *good, *bad)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", ONE_LIMIT))
    assert suggestion.guaranteed
    assert suggestion.chosen is not None
    assert [(one.entry, one.old) for one in suggestion.chosen.changes] == [
        ("budgets/calls-per-session", {})
    ]
    assert 5 <= int(suggestion.chosen.changes[0].new["calls"]) <= 10
    assert suggestion.chosen.held_out.catch.count == suggestion.held_out.failed


def test_a_budget_that_sessions_share_is_explored_over_all_of_them(tmp_path: Path) -> None:
    """Half of the sessions alone would stay below any budget that is tried."""
    calls = [read(f"/{number}") for number in range(10)]
    runs = [lines(f"s{n}", calls, success=n < 20, agent="a") for n in range(40)]
    trace = write(tmp_path / "t.jsonl", *runs)
    file = policy(tmp_path / "p.yaml", "budgets: {all: {calls: 880, per: agent}}")
    suggestion = _suggested(trace, file)
    assert suggestion.shared == ["budgets/all"]
    assert suggestion.chosen is not None
    assert [change.new["calls"] for change in suggestion.chosen.changes] == [220]


def test_too_few_runs_give_no_guarantee_but_the_number_needed(tmp_path: Path) -> None:
    trace = _runs(tmp_path / "t.jsonl", [2] * 40, [4] * 20)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", ONE_LIMIT), max_harm=0.01)
    assert (suggestion.guaranteed, suggestion.needed, suggestion.held_out.succeeded) == (
        False,
        230,
        20,
    )
    assert not any(one.certified for one in suggestion.candidates)
    header = " ".join(line.removeprefix("# ") for line in render_yaml(suggestion).splitlines())
    assert "no guarantee" in header
    assert "takes at least 230 held-out successful runs" in header
    assert "guaranteed" not in header
    assert suggestion.chosen is not None  # the observation is shown instead


def test_with_too_much_harm_nothing_is_proposed(tmp_path: Path) -> None:
    text = "rules: {no: {tools: [read], when: \"call.args.path == '/same'\"}}"
    trace = _runs(tmp_path / "t.jsonl", [1] * 100, [1] * 5)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", text))
    assert (suggestion.guaranteed, suggestion.chosen, suggestion.yaml) == (False, None, "")
    assert suggestion.candidates[0].held_out.harm.count == 50


def test_unknown_counts_as_harm(tmp_path: Path) -> None:
    text = "rules: {no: {tools: [read], when: \"call.args.path == '/same'\"}}"
    trace = tmp_path / "t.jsonl"
    with trace.open("w") as file:
        for number in range(100):
            name = f"s{number}"
            events = [
                {"event": "started"},
                {"event": "admitted", "call": "c", "tool": "read"},
                {"event": "completed", "call": "c", "ok": True},
                {"event": "closed", "success": True},
            ]
            file.writelines(json.dumps({**one, "session": name}) + "\n" for one in events)
    suggestion = _suggested(trace, policy(tmp_path / "p.yaml", text))
    assert not suggestion.guaranteed
    assert (
        suggestion.candidates[0].held_out.unknown
        == suggestion.candidates[0].held_out.harm.count
        == 50
    )


def test_the_result_depends_on_the_seed_only(tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 - draws that can be made again
    good = [chance.randint(1, 5) for _ in range(60)]
    trace = _runs(tmp_path / "t.jsonl", good, [4, 5, 6, 7] * 5)
    file = policy(tmp_path / "p.yaml", ONE_LIMIT)
    suggestion = _suggested(trace, file)
    assert suggestion == _suggested(trace, file)
    assert suggestion.candidates != _suggested(trace, file, seed=1).candidates


def test_held_out_runs_do_not_influence_candidates(tmp_path: Path) -> None:
    """Other outcomes and other calls in them change the tests, not what is tested."""
    file = policy(tmp_path / "p.yaml", ONE_LIMIT)
    first = _suggested(_runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20), file)
    mild = first.candidates
    held = split_runs([f"g{n}\nt.jsonl" for n in range(100)], 0, first.needed)[1]
    good = [11 if n in held else 2 for n in range(100)]
    other = _suggested(_runs(tmp_path / "t.jsonl", good, [4] * 20), file)
    assert (other.sweep, other.curve) == (first.sweep, first.curve)
    assert "budgets/calls-per-session" in {point.entry for point in first.sweep}
    wild = other.candidates
    assert [one.changes for one in wild] == [one.changes for one in mild]
    assert [one.explored for one in wild] == [one.explored for one in mild]
    assert wild[-1].held_out.harm.count == 50


def test_signatures_are_proposed_for_unmatched_errors(tmp_path: Path) -> None:
    hidden = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    calls = [
        *(failed("db", f"quux table {n} is frobbed by ghost {n}", q=n) for n in range(4)),
        *(failed("db", "wibble wobble wubble", q=n) for n in range(3)),
        *(failed("db", f"glorp token {hidden} went stale today", q=n) for n in range(2)),
        failed("db", "seen once only dear reader", q=1),
        {"tool": "db", "args": {}, "text": "all is well: wibble wobble wubble"},
    ]
    good = [lines(f"g{n}", [read("/a")], success=True) for n in range(4)]
    suggestion = _suggested(write(tmp_path / "t.jsonl", lines("s", calls, success=False), *good))
    assert [(one.hits, one.pattern) for one in suggestion.signatures] == [
        (4, r"\bquux table \S+ is frobbed by ghost\b"),
        (2, r"\bglorp token \S+ went stale today\b"),
    ]
    assert suggestion.signatures[1].examples == [
        "glorp token [secret_github_token] went stale today"
    ]
    assert hidden not in suggestion.signatures_yaml
    assert {one.why: one.errors for one in suggestion.errors.unproposed} == {
        "the pattern also matches results that did not fail": 3,
        "seen only once": 1,
    }
    layer = tmp_path / "signatures.yaml"
    layer.write_text(render_signatures(suggestion))
    assert lint_paths([layer]).diagnostics == []
    observed = compile_policy([layer]).policy.signatures
    assert {one.id for one in suggestion.signatures} <= {one.id for one in observed}
    assert all(one.blame == "unknown" for one in observed[:2])


def test_extends_is_relative_to_the_layers_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    base = policy(tmp_path / "in" / "p.yaml", ONE_LIMIT)
    trace = _runs(tmp_path / "t.jsonl", [2] * 100, [4] * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        suggestion = _suggested(trace, base.relative_to(tmp_path), folder=Path("out"))
        assert "extends: [../in/p.yaml]" in suggestion.yaml
        (tmp_path / "out" / "s.yaml").write_text(render_yaml(suggestion))
        assert lint_paths([Path("out/s.yaml")]).diagnostics == []
        repeat = compile_policy("out/s.yaml").policy.limits["default"].repeat
    assert repeat is not None
    assert not isinstance(repeat, str)
    assert repeat.max == 3


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ([], [3], "none of 1 sessions succeeded; at least 2 are needed"),
        ([1], [3], "1 of 2 sessions succeeded; at least 2 are needed"),
        ([], [], "no session has a known outcome"),
    ],
)
def test_useless_runs_are_an_error(
    tmp_path: Path, good: list[int], bad: list[int], says: str
) -> None:
    trace = _runs(tmp_path / "t.jsonl", good, bad, unknown=0 if good or bad else 2)
    with pytest.raises(SuggestError, match=says):
        _suggested(trace)


def _promises(directory: Path, seeds: range) -> tuple[int, int]:
    """How often the whole of it promises something, and how often that is wrong.

    Successful runs repeat a call as often as a geometric distribution says, so that the true harm
    of each threshold is known: it is `stay ** threshold`.
    """
    stay = 0.38
    most = stay**3 - 0.001  # more than two repetitions: that harms just too many
    file = policy(directory / "p.yaml", ONE_LIMIT)
    made = wrong = 0
    for seed in seeds:
        chance = random.Random(seed)  # noqa: S311 - draws that can be made again

        def draw(stay: float = stay, chance: random.Random = chance) -> int:
            return math.floor(math.log(1 - chance.random()) / math.log(stay))

        good = [draw() for _ in range(110)]
        suggestion = _suggested(
            _runs(directory / "t.jsonl", good, [3, 4, 5] * 4), file, max_harm=most, seed=seed
        )
        for one in suggestion.candidates:
            entries = {change.entry: change.new for change in one.changes}
            if one.certified and "budgets/calls-per-session" not in entries:
                made += 1
                # `max` gets through: a run with more than that is refused.
                threshold = int(entries.get("limits/default/repeat", {"max": 4})["max"])
                if stay ** (threshold + 1) > most:
                    wrong += 1
                    break
    return made, wrong


def test_the_guarantee_holds_with_the_real_guard(tmp_path: Path) -> None:
    made, wrong = _promises(tmp_path, range(4))
    assert made
    assert wrong <= 2


@pytest.mark.slow
def test_the_guarantee_holds_with_the_real_guard_over_many_draws(tmp_path: Path) -> None:
    draws = 60
    made, wrong = _promises(tmp_path, range(100, 100 + draws))
    assert made > draws / 2
    assert wrong <= draws * 0.1 + 3 * math.sqrt(draws * 0.09)
