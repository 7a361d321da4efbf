"""`policyguard policy promote`: evidence first, then one word of the file."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = """\
# the team's policy
policyguard: 1
name: p
rules:
  no-push:   # tried since Monday
    tools: [push]
    when: call.args.force
    mode:   observe   # for now
    examples: {match: [push: {force: true}], no_match: [push: {force: false}]}
  on: {tools: [off], when: "true"}
limits:
  tools: {poll: {repeat: {max: 1, mode: observe}}}
journal: {args: keep}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    with Guard.load(tmp_path / "policy.yaml", store=tmp_path / "s" / "store.db") as guard:
        for name, force in (("good", [True, False]), ("bad", [True, True]), ("fine", [False])):
            session = guard.session(name)
            for flag in force:
                decision = session.check("push", {"force": flag})
                assert decision.allowed
                assert [one.id for one in decision.would] == (["rules/no-push"] if flag else [])
                session.record(decision, result="pushed")
            session.end()
    labels = [{"session": "good", "success": True}, {"session": "bad", "success": False}]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    return tmp_path


def _run(folder: Path, *args: str, journal: bool = True, labels: bool = True) -> Result:
    options = ["--policy", str(folder / "policy.yaml")]
    options += ["--journal", str(folder / "s" / "journal")] if journal else []
    options += ["--labels", str(folder / "labels.jsonl")] if labels else []
    return CliRunner().invoke(main, ["policy", "promote", *args, *options], catch_exceptions=False)


def test_the_evidence_is_shown_and_nothing_changes(folder: Path) -> None:
    result = _run(folder, "no-push")
    assert result.exit_code == 0
    assert "rules/no-push: would have refused 3 of 5 calls, in 2 of 3 sessions" in result.stdout
    assert "harm   1 of 1 successful sessions" in result.stdout
    assert "catch  1 of 1 failed sessions" in result.stdout
    assert "good: 1 call, succeeded" in result.stdout
    assert (folder / "policy.yaml").read_text() == POLICY
    assert "harm   unknown" in _run(folder, "rules/no-push", labels=False).stdout
    plain = json.loads(_run(folder, "no-push", "--format", "json").stdout)
    assert {one["session"]: one["calls"] for one in plain["refusals"]} == {"good": 1, "bad": 2}


def test_yes_changes_one_word(folder: Path) -> None:
    assert _run(folder, "no-push", "--yes").exit_code == 0
    expected = POLICY.replace("mode:   observe   # for now", "mode:   enforce   # for now")
    assert (folder / "policy.yaml").read_text() == expected
    guard = Guard.load(folder / "policy.yaml")
    assert not guard.session("s").check("push", {"force": True}).allowed
    again = _run(folder, "no-push", "--yes")
    assert again.exit_code == 2
    assert "no entry `no-push` is in observe mode" in again.output


def test_a_file_that_cannot_be_written_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dir: Path, prefix: str) -> None:  # noqa: A002 - its name
        raise OSError(errno.EROFS, "Read-only file system", str(dir / f"{prefix}x"))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    result = _run(folder, "no-push", "--yes")
    file = folder / "policy.yaml"
    message = f"policyguard policy promote: `{file}`: Read-only file system\n"
    assert (result.exit_code, result.stderr) == (2, message)


def test_limits_can_be_promoted(folder: Path) -> None:
    result = _run(folder, "limits/tools:poll/repeat", "--yes")
    assert result.exit_code == 0
    assert "would have refused 0 of 5 calls" in result.stdout
    assert "{max: 1, mode: enforce}" in (folder / "policy.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [("on", "no entry `on` is in observe mode"), ("no-pusch", "did you mean")],
)
def test_what_does_not_observe_is_misuse(folder: Path, name: str, message: str) -> None:
    result = _run(folder, name)
    assert result.exit_code == 2
    assert message in result.output


def test_without_evidence_it_refuses(folder: Path, tmp_path: Path) -> None:
    result = _run(folder, "no-push", "--yes", journal=False)
    assert result.exit_code == 2
    assert "pass --journal" in result.output
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.jsonl").write_text("")
    result = _run(folder, "no-push", "--yes", "--journal", str(tmp_path / "empty"), journal=False)
    assert result.exit_code == 2
    assert (folder / "policy.yaml").read_text() == POLICY


def test_what_was_not_recorded_is_not_counted(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY.replace("args: keep", "args: hash"))
    with Guard.load(folder / "policy.yaml", store=folder / "t" / "store.db") as guard:
        session = guard.session("x")
        session.record(session.check("push", {"force": False}), result="pushed")
        session.end()
    result = _run(folder, "no-push", "--journal", str(folder / "t" / "journal"), journal=False)
    assert "would have refused 0 of 1 calls" in result.stdout
    assert "the arguments of 1 calls were not recorded" in result.stdout


def test_a_policy_that_observes_as_a_whole_is_not_changed(folder: Path) -> None:
    text = POLICY.replace("name: p", "name: p\nmode: observe")
    (folder / "policy.yaml").write_text(text)
    result = _run(folder, "no-push", "--yes")
    assert result.exit_code == 2
    assert "observes as a whole" in result.output


def test_an_entry_that_shares_its_mode_is_not_changed(folder: Path) -> None:
    text = POLICY.replace("mode:   observe", "mode: &mode observe").replace(
        'on: {tools: [off], when: "true"}', 'on: {tools: [off], when: "true", mode: *mode}'
    )
    (folder / "policy.yaml").write_text(text)
    result = _run(folder, "no-push", "--yes")
    assert result.exit_code == 2
    assert (folder / "policy.yaml").read_text() == text


def test_what_would_be_refused_is_in_the_journal(folder: Path) -> None:
    (file,) = [
        file
        for file in (folder / "s" / "journal").glob("*.jsonl")
        if b'"session":"good"' in file.read_bytes()
    ]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    admitted = [line.get("would") for line in lines if line["event"] == "admitted"]
    assert admitted == [["rules/no-push"], None]
    shown = CliRunner().invoke(main, ["journal", "show", str(file)]).stdout
    assert 'would=["rules/no-push"]' in shown
