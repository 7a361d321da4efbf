"""Two policies over the same recordings: newly refused and newly allowed calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from policyguard.report.replay.figures import BaselineFigures, Figures
from policyguard.report.replay.html import render_html
from policyguard.report.replay.text import render_text
from policyguard.simulate import Labels, Replay, ReportSize, load
from policyguard.traces import Reader
from tests.simulate.recording import NO_SECRETS, lines, policy, read, write

AT_MOST_TWO = "budgets: {reads: {tools: [read], calls: 2}}"


def _compared(
    folder: Path, new: str, old: str, *sessions: list[str]
) -> tuple[Figures, BaselineFigures]:
    file = write(folder / "t.jsonl", *sessions)
    replay = Replay(
        load(policy(folder / "new.yaml", new)),
        observe=False,
        labels=None,
        baseline=load(policy(folder / "old.yaml", old)),
    )
    replay.add(Reader().read(file))
    figures = replay.finish()
    assert figures.baseline is not None
    return figures, figures.baseline


def _session(id_: str, *paths: str, success: bool | None = None) -> list[str]:
    return list(lines(id_, [read(path) for path in paths], success=success))


def test_each_session_has_its_change(tmp_path: Path) -> None:
    figures, baseline = _compared(
        tmp_path,
        NO_SECRETS,
        AT_MOST_TWO,
        _session("newly-refused", "/secret/a", "/b", success=True),
        _session("newly-allowed", "/a", "/b", "/c", success=False),
        _session("earlier", "/a", "/secret", "/c"),
        _session("later", "/a", "/b", "/c", "/secret"),
        _session("alike", "/a", "/b", "/secret"),
        _session("untouched", "/a", "/b"),
    )
    changes = {run.id: run.baseline.change for run in figures.sessions if run.baseline}
    assert changes == {
        "newly-refused": "newly_refused",
        "newly-allowed": "newly_allowed",
        "earlier": "earlier",
        "later": "later",
        "alike": "same",
        "untouched": "same",
    }
    assert (baseline.newly_refused.sessions.count, baseline.newly_refused.sessions.of) == (1, 6)
    assert (baseline.newly_refused.succeeded, baseline.newly_refused.failed) == (1, 0)
    assert (baseline.newly_allowed.sessions.count, baseline.newly_allowed.failed) == (1, 1)
    assert (baseline.earlier, baseline.later, baseline.unknown) == (1, 1, 0)
    assert (figures.refused.count, baseline.refused.count) == (4, 4)
    assert (figures.harm.refused, baseline.harm.refused) == (1, 0)
    assert (figures.catch.refused, baseline.catch.refused) == (0, 1)


@pytest.mark.parametrize("render", [render_text, render_html])
def test_the_result_says_what_changed_for_successful_runs(
    tmp_path: Path, render: Callable[[Figures], str]
) -> None:
    figures, _ = _compared(
        tmp_path,
        NO_SECRETS,
        AT_MOST_TWO,
        _session("newly-refused", "/secret/a", success=True),
        _session("newly-allowed", "/a", "/b", "/c", success=True),
        _session("failed", "/secret/a", success=False),
    )
    assert (
        "1 successful session newly refused, 1 newly allowed; the baseline would have refused a "
        "call in 1"
    ) in render(figures)
    figures.baseline = None
    assert "newly refused" not in render(figures)


def test_examples_show_the_call_the_rule_the_message_and_the_outcome(
    tmp_path: Path,
) -> None:
    _, baseline = _compared(
        tmp_path,
        NO_SECRETS,
        "",
        _session("failed", "/a", "/secret/b", success=False),
        _session("succeeded", "/a", "/b", "/secret/c", "/secret/d", success=True),
    )
    first, second = baseline.newly_refused.examples
    assert (first.session, first.success, first.index) == ("succeeded", True, 2)
    assert (first.rule, first.message) == ("rules/no-secrets", "not /secret/c")
    assert (first.call.tool, first.call.args) == ("read", '{"path":"/secret/c"}')
    assert (first.call.effect, first.call.baseline) == ("block", "allow")
    assert not first.call.counterfactual
    assert (second.session, second.success) == ("failed", False)
    assert baseline.newly_refused.calls == 3
    assert baseline.newly_allowed.examples == []


def test_a_difference_after_a_divergence_is_counterfactual(tmp_path: Path) -> None:
    """Both refuse the third read; only the new policy refuses the fourth, which may never be."""
    _, baseline = _compared(
        tmp_path, NO_SECRETS + AT_MOST_TWO, AT_MOST_TWO, _session("s", "/a", "/b", "/c", "/secret")
    )
    assert baseline.newly_refused.calls == 0  # the budget refuses the fourth too
    _, baseline = _compared(
        tmp_path,
        NO_SECRETS + "  no-c: {tools: [read], when: \"call.args.path == '/c'\"}",
        "rules: {no-c: {tools: [read], when: \"call.args.path == '/c'\"}}",
        _session("s", "/a", "/c", "/secret"),
    )
    (example,) = baseline.newly_refused.examples
    assert example.call.counterfactual
    assert baseline.newly_refused.sessions.count == 0  # the session was refused a call before


def test_the_same_policy_changes_nothing(tmp_path: Path) -> None:
    figures, baseline = _compared(
        tmp_path, NO_SECRETS, NO_SECRETS, _session("s", "/secret", "/b"), _session("t", "/c")
    )
    assert baseline.newly_refused.calls == baseline.newly_allowed.calls == 0
    assert baseline.effects == figures.effects
    where = {"file": "", "line": 0}  # the two policies are two files
    assert [replace(one, **where) for one in baseline.rules] == [
        replace(one, **where) for one in figures.rules
    ]


def test_each_policy_is_replayed_separately(tmp_path: Path) -> None:
    """A call that one refuses takes no place in its budget, and does in the other's."""
    figures, baseline = _compared(
        tmp_path, NO_SECRETS + AT_MOST_TWO, AT_MOST_TWO, _session("s", "/secret", "/b", "/c", "/d")
    )
    (run,) = figures.sessions
    assert run.baseline is not None
    assert (run.first_refusal, run.refused) == (0, 2)  # /secret by the rule, /d by the budget
    assert (run.baseline.first_refusal, run.baseline.refused) == (2, 2)
    assert (baseline.newly_refused.calls, baseline.newly_allowed.calls) == (1, 1)


def test_examples_and_sessions_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "t.jsonl", *(_session(f"s{n}", "/a", "/secret") for n in range(30)))
    replay = Replay(
        load(policy(tmp_path / "new.yaml", NO_SECRETS)),
        observe=False,
        labels=None,
        baseline=load(policy(tmp_path / "old.yaml", "")),
        report_size=ReportSize(sessions=5, timelines=2, examples=3),
    )
    replay.add(Reader().read(file))
    figures = replay.finish()
    assert figures.baseline is not None
    assert [run.id for run in figures.sessions] == ["s0", "s1", "s2", "s3", "s4"]
    assert figures.left_out == 25
    assert [bool(run.timeline) for run in figures.sessions] == [True, True, False, False, False]
    assert figures.refused.count == 30
    assert figures.baseline.newly_refused.sessions.count == 30
    assert len(figures.baseline.newly_refused.examples) == 3


@pytest.mark.parametrize("success", [True, None])
def test_the_highest_ranks_are_kept(tmp_path: Path, success: bool | None) -> None:
    """One refused session among many untouched ones, wherever it stands."""
    file = write(
        tmp_path / "t.jsonl",
        *(_session(f"s{n}", "/a", success=True) for n in range(20)),
        _session("hit", "/secret", success=success),
        *(_session(f"t{n}", "/a", success=True) for n in range(20)),
    )
    labels = tmp_path / "labels.jsonl"
    labels.write_text("")
    replay = Replay(
        load(policy(tmp_path / "new.yaml", NO_SECRETS)),
        observe=False,
        labels=Labels.read(labels),
        report_size=ReportSize(sessions=3),
    )
    replay.add(Reader().read(file))
    assert [run.id for run in replay.finish().sessions] == ["s0", "s1", "hit"]
