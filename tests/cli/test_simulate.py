"""`policyguard simulate`, as a person or a program would use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main

DEMO = Path(__file__).parents[2] / "docs" / "demo"


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
    assert all(rule.keys() == {"id", "effect", "hits", "sessions"} for rule in report["rules"])
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
    assert "forgetful-reader in trace.jsonl (succeeded)" in refused[2]
    assert "1 of 3 successful sessions had a call refused: 33.3%" in result.stdout
    assert "1 against the recording's own outcome" in result.stdout


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
    ],
)
def test_broken_labels_are_named(tmp_path: Path, lines: str, says: str) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(lines)
    result = _run(DEMO / "trace.jsonl", "--labels", labels)
    assert result.exit_code == 2
    assert says in result.stderr


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
    assert result.exit_code == 0
    assert "notes.txt: no JSON" in result.stdout
    assert "no trace among the files given" in result.stderr
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
