"""`policyguard simulate`, as a person or a program would use it."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from tests.terminal import run_at_terminal

DEMO = Path(__file__).parents[2] / "docs" / "demo"
_FREE = 200
"""A descriptor that no worker has."""


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, args)], catch_exceptions=False)


def _json(*args: str | Path) -> dict[str, Any]:
    result = _run(*args, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_demo_shows_a_loop_a_budget_a_poll_and_an_untouched_run() -> None:
    report = _json(DEMO / "trace.jsonl", "--policy", DEMO / "policy.yaml")
    assert {run["id"]: run["first_rule"] for run in report["sessions"]} == {
        "forgetful-reader": "limits/default/repeat",
        "eager-researcher": "budgets/web-searches",
        "patient-exporter": None,
        "steady-fixer": None,
    }
    assert report["harm"]["refused"] == 0
    assert report["catch"]["refused"] == 2


def test_the_report_has_what_programs_rely_on() -> None:
    report = _json(DEMO / "trace.jsonl", "--policy", DEMO / "policy.yaml")
    assert report["policy"].keys() >= {"name", "digest"}
    assert report["traces"].keys() >= {
        "files",
        "sessions",
        "calls",
        "skipped",
        "formats",
        "untimed",
        "errors",
    }
    assert report["traces"]["errors"].keys() == {"explicit", "inferred", "unknown"}
    assert report["effects"].keys() == {"allow", "advise", "ask", "block", "halt"}
    assert sum(report["effects"].values()) == report["traces"]["calls"] == 66
    assert all(rule.keys() >= {"id", "effect", "hits", "sessions"} for rule in report["rules"])
    assert report["harm"].keys() >= {"succeeded", "refused", "rate", "ci95"}
    assert report["catch"].keys() >= {"failed", "refused", "rate", "ci95", "calls_saved"}
    looped = next(run for run in report["sessions"] if run["id"] == "forgetful-reader")
    assert looped["calls"] == 17
    assert looped["first_refusal"] == 7  # the fifth of the same reads, after three other calls
    assert looped["calls_after_first_refusal"] == 9
    assert report["catch"]["calls_saved"] == 9 + 5


def test_observe_counts_every_call_as_it_was_recorded() -> None:
    enforced = _json(DEMO / "trace.jsonl", "--policy", DEMO / "policy.yaml")
    observed = _json(DEMO / "trace.jsonl", "--policy", DEMO / "policy.yaml", "--mode", "observe")
    assert observed["policy"]["mode"] == "observe"
    assert observed["effects"]["block"] >= enforced["effects"]["block"]
    first = [run["first_refusal"] for run in enforced["sessions"]]
    assert [run["first_refusal"] for run in observed["sessions"]] == first


def test_text_names_the_harm_first(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"session": "forgetful-reader", "success": true, "file": "trace.jsonl"}\n')
    result = _run(DEMO / "trace.jsonl", "--policy", DEMO / "policy.yaml", "--labels", labels)
    assert result.exit_code == 0
    refused = result.stdout.split("refused (")[1].splitlines()
    assert "forgetful-reader in trace.jsonl (succeeded)" in refused[1]
    assert "1 of 3 successful sessions had a call refused: 33.3%" in result.stdout
    assert "1 contradicted the recording" in result.stdout


def test_labels_by_file_alone_need_a_file_of_one_session(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        '{"file": "demo/trace.jsonl", "success": true}\n{"session": "x", "success": false}\n'
    )
    report = _json(DEMO / "trace.jsonl", "--labels", labels)
    assert report["labels"] == {"matched": 0, "unmatched": 2, "disagree": 0}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('{"session": "a"}', "labels.jsonl:1: not a label"),
        ('{"session": "a", "success": true}\n{', "labels.jsonl:2: not a label"),
        ('{"success": true}', "needs a `session` or a `file`"),
        ("[" * 100_000, "labels.jsonl:1: not a label"),
        (
            '{"session": "a", "success": false}\n\n{"session": "a", "success": true}',
            "labels.jsonl:3: conflicts with {path}:1 about the same session",
        ),
        (
            '{"session": "a", "success": null}\n{"session": "a", "file": "t", "success": true}',
            "labels.jsonl:2: conflicts with",
        ),
        (
            '{"session": "a", "file": "x/t", "success": false}\n'
            '{"session": "a", "file": "y/t", "success": true}\n'
            '{"session": "a", "file": "t", "success": true}',
            "labels.jsonl:3: conflicts with {path}:1 about",
        ),
        (
            '{"file": "t", "success": false}\n{"file": "x/t", "success": true}',
            "labels.jsonl:2: conflicts with",
        ),
    ],
)
def test_broken_labels_are_named(tmp_path: Path, lines: str, says: str) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(lines)
    result = _run(DEMO / "trace.jsonl", "--labels", labels)
    assert result.exit_code == 2
    assert says.format(path=labels) in result.stderr


def test_repeated_labels_count_once(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        '{"session": "forgetful-reader", "success": true}\n'
        * 2
        + '{"session": "forgetful-reader", "success": true, "file": "trace.jsonl"}\n'
        '{"session": "patient-waiter", "success": true, "file": "x/trace.jsonl"}\n'
        '{"session": "patient-waiter", "success": false, "file": "y/trace.jsonl"}\n'
    )
    report = _json(DEMO / "trace.jsonl", "--labels", labels)
    assert report["labels"] == {"matched": 2, "unmatched": 2, "disagree": 1}


def test_a_label_that_says_what_the_recording_says_agrees(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    sessions = [("good", True), ("bad", False)]
    with trace.open("w") as file:
        for name, success in sessions:
            events = [{"event": "started"}, {"event": "closed", "success": success}]
            file.writelines(json.dumps({**one, "session": name}) + "\n" for one in events)
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"session": "good", "success": true}\n{"session": "bad", "success": true}\n')
    report = _json(trace, "--labels", labels)
    assert report["labels"] == {"matched": 2, "unmatched": 0, "disagree": 1}


def test_a_broken_policy_is_shown_and_ends_with_2(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policyguard: 1\nname: x\nrules: {a: {when: cal.tool == 'b'}}\n")
    result = _run(DEMO / "trace.jsonl", "--policy", policy)
    assert result.exit_code == 2
    assert "error[cel/undeclared-reference]" in result.stderr
    assert "did you mean `call`" in result.stderr


def test_what_is_no_trace_is_named_and_a_path_of_nothing_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    result = _run(tmp_path)
    assert result.exit_code == 2
    assert "notes.txt: not JSON" in result.stdout
    assert "none of the files is a trace" in result.stderr
    missing = _run(tmp_path / "nowhere.jsonl")
    assert missing.exit_code == 2
    assert "nowhere.jsonl" in missing.stderr


def test_hostile_text_cannot_reach_the_terminal(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    call = '{"event":"admitted","session":"s","call":"c%d","tool":"\\u001b[2Jx","args":{"a":1}}'
    result = '{"event":"completed","session":"s","call":"c%d","ok":true,"text":"\\u001b]0;x"}'
    trace.write_text("\n".join(line % n for n in range(9) for line in (call, result)))
    shown = _run(trace, "--policy", "core")
    assert "limits/default/repeat" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_policy_here_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _json(DEMO / "trace.jsonl")["policy"]["name"] == "core"
    Path("policyguard.yaml").write_text("policyguard: 1\nname: here\n")
    assert _json(DEMO / "trace.jsonl")["policy"]["name"] == "here"


# Comparing, gating, bounds.

POLICY = DEMO / "policy.yaml"


def test_a_baseline_shows_what_a_change_newly_refuses() -> None:
    report = _json(DEMO / "trace.jsonl", "--policy", POLICY, "--baseline", "core")
    changed = {run["id"]: run["baseline"]["change"] for run in report["sessions"]}
    assert changed == {
        "forgetful-reader": "same",
        "eager-researcher": "newly_refused",
        "patient-exporter": "same",
        "steady-fixer": "same",
    }
    (example,) = report["baseline"]["newly_refused"]["examples"]
    assert example["rule"] == "budgets/web-searches"
    assert report["baseline"]["policy"]["name"] == "core"
    assert _json(DEMO / "trace.jsonl", "--policy", POLICY)["baseline"] is None


@pytest.mark.parametrize(
    ("conditions", "code", "says"),
    [
        (["catch.rate > 0.9"], 1, "--fail-on catch.rate > 0.9: FAILED: catch.rate = 1"),
        (["harm.rate > 0.01"], 0, ""),
        (
            ["harm.rate > 0.01", "effects.block > 0"],
            1,
            "effects.block > 0: FAILED: effects.block =",
        ),
        (["baseline.earlier > 0"], 2, "pass the policy to compare with: --baseline"),
        (["harm.rat > 0.01"], 2, "did you mean `rate`?"),
        (["sessions[9].calls > 0"], 1, "FAILED: cannot be decided"),
    ],
)
def test_fail_on_decides_the_exit_code(conditions: list[str], code: int, says: str) -> None:
    options = [word for condition in conditions for word in ("--fail-on", condition)]
    result = _run(DEMO / "trace.jsonl", "--policy", POLICY, *options)
    assert result.exit_code == code
    assert says in result.stderr
    if code == 2:
        assert result.stdout == ""
    else:
        assert [f"--fail-on {one}" in result.stdout for one in conditions] == [True] * len(
            conditions
        )


def test_a_rate_of_nothing_does_not_open_the_gate(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"event":"admitted","session":"s","call":"c","tool":"t","args":{}}\n')
    result = _run(trace, "--policy", "core", "--fail-on", "harm.rate > 0.01")
    assert result.exit_code == 1
    assert "`harm.rate` is unknown" in result.stderr


def test_a_broken_baseline_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("policyguard: 1\nname: b\nrulez: {}\n")
    result = _run(DEMO / "trace.jsonl", "--baseline", tmp_path / "b.yaml")
    assert result.exit_code == 2
    assert "unknown key `rulez`" in result.stderr


@pytest.mark.parametrize("form", ["text", "json", "markdown", "junit"])
def test_every_format_can_be_asked_for(form: str) -> None:
    result = _run(DEMO / "trace.jsonl", "--policy", POLICY, "--format", form)
    assert result.exit_code == 0
    assert "forgetful-reader" in result.stdout
    assert "\x1b" not in result.stdout


def test_sessions_and_timelines_are_as_many_as_asked_for() -> None:
    report = _json(DEMO / "trace.jsonl", "--policy", POLICY, "--sessions", "2", "--timelines", "1")
    assert [run["id"] for run in report["sessions"]] == ["forgetful-reader", "eager-researcher"]
    assert report["left_out"] == 2
    assert [bool(run["timeline"]) for run in report["sessions"]] == [True, False]
    assert report["refused"]["count"] == 2


def test_workers_that_cannot_share_sessions_are_reported(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("policyguard: 1\nname: p\nbudgets: {all: {calls: 9, per: project}}\n")
    result = _run(DEMO / "trace.jsonl", "--policy", policy, "--workers", "2")
    assert result.exit_code == 0
    assert "using one worker: budgets/all count across sessions" in result.stderr


def test_a_worker_that_cannot_work_is_an_error_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels are in a pipe of this process, which its workers do not have."""
    monkeypatch.setattr("policyguard.simulate.jobs.workers.MIN_WORKER_BYTES", 1)
    ours, theirs = os.pipe()
    os.write(theirs, b'{"session": "s", "success": true}\n')
    os.close(theirs)
    os.dup2(ours, _FREE, inheritable=False)
    os.close(ours)
    labels = f"/dev/fd/{_FREE}"
    try:
        result = _run(
            DEMO / "trace.jsonl", "--policy", POLICY, "--labels", labels, "--workers", "2"
        )
    finally:
        os.close(_FREE)
    assert result.exit_code == 2
    assert "policyguard simulate: a worker failed: LabelError" in result.stderr


@pytest.mark.parametrize("plain", [False, True])
def test_at_a_terminal_there_are_colours_and_a_progress_bar(plain: bool) -> None:
    chosen = {"NO_COLOR": "1"} if plain else {}
    code, text = run_at_terminal(
        "simulate", DEMO / "trace.jsonl", "--policy", POLICY, columns=120, **chosen
    )
    assert code == 0
    assert "replaying" in text
    assert "events" in text
    report = text[text.index("policy demo") :]
    assert ("\x1b[33m" in report or "\x1b[36m" in report) is not plain
    assert ("█" in report) is not plain


def test_at_80_columns_the_last_screen_shows_the_result_and_the_next_step(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"session": "forgetful-reader", "success": true}\n')
    options = ("--policy", POLICY, "--labels", labels)
    _, shown = run_at_terminal("simulate", DEMO / "trace.jsonl", *options)
    report = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown[shown.index("policy demo") :])
    lines = report.rstrip("\n").split("\n")
    assert max(map(len, lines)) <= 80
    last = " ".join(" ".join(lines[-22:]).split())
    sentence = (
        "result This policy would have refused a call in 1 of 3 successful sessions: "
        "1 by limits/default/repeat."
    )
    assert sentence in last
    assert "next see the refused calls with `--format html -o report.html`; then" in last
    assert sentence in " ".join(" ".join(lines[:8]).split())
    assert "next" not in _run(DEMO / "trace.jsonl", *options).output


def test_a_report_says_when_it_was_made_and_how_long_that_took() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    report = _json(DEMO / "trace.jsonl", "--policy", POLICY)
    assert before <= datetime.fromisoformat(report["created_at"]) <= datetime.now(UTC)
    assert 0 < report["elapsed_s"] < 60
