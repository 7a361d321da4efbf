"""`policyguard grants suggest`: many alike approvals become a proposed rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = """
policyguard: 1
name: p
extends: [core]
rules:
  shell: {tools: [bash], commands: [git push, npm, rm], effect: ask, unless: "call.agent == 'ci'"}
  write: {tools: [write], effect: ask}
journal: {args: keep}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(folder: Path, calls: list[tuple[str, dict[str, Any], bool]]) -> None:
    with Guard.load(folder / "policy.yaml", store=folder / "s" / "store.db") as guard:
        session = guard.session("s", cwd="/w")
        for tool, args, is_approved in calls:
            decision = session.check(tool, args)
            assert decision.effect == "ask"
            if is_approved:
                session.approve(decision, by="ann")
                session.record(session.check(tool, args), result="done")


def push(name: str, *, approved: bool = True) -> tuple[str, dict[str, Any], bool]:
    return "bash", {"command": f"git push origin {name}"}, approved


def run(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(
        main,
        ["grants", "suggest", str(folder / "s" / "journal"), "--policy", "policy.yaml", *args],
        catch_exceptions=False,
    )


def test_alike_commands_become_an_exemption(folder: Path) -> None:
    record(folder, [push(f"b{number}") for number in range(5)])
    result = run(folder, "-o", "granted.yaml")
    assert result.exit_code == 0, result.output
    assert "rules/shell: 5 approvals of bash: git push origin … (no options)" in result.stdout
    assert "10 recorded attempts would newly be allowed" in result.stdout
    assert "git push origin b0" in result.stdout
    session = Guard.load(folder / "granted.yaml").session("t", cwd="/w")

    def allowed(command: str) -> bool:
        return session.preview("bash", {"command": command}).allowed

    assert allowed("git push origin b9")
    for command in (
        "git push --force origin b9",
        "git push origin +b9",
        "git push upstream b9",
        "git push origin b9; rm -rf /",
        "git push origin $(cat .env)",
        "git push origin b9\nrm -rf /",
        "git push origin b9 > x && rm x",
        "git push origin b9 /srv/x",
        "git push origin b9 ../x",
        "rm -rf x",
    ):
        assert not allowed(command), command
    other = Guard.load(folder / "granted.yaml").session("u", cwd="/elsewhere")
    assert not other.preview("bash", {"command": "git push origin b9"}).allowed
    ci = Guard.load(folder / "granted.yaml").session("v", agent="ci")
    assert ci.preview("bash", {"command": "rm -rf x"}).allowed, "what was exempt before"


def test_a_policy_that_reads_no_paths_gets_a_proposal_that_loads(folder: Path) -> None:
    (folder / "policy.yaml").write_text(
        POLICY.replace("extends: [core]", "classify: {shell: {arguments: [command]}}")
    )
    record(folder, [push(f"b{number}") for number in range(5)])
    result = run(folder, "-o", "granted.yaml")
    assert result.exit_code == 0, result.output
    session = Guard.load(folder / "granted.yaml").session("t", cwd="/w")
    assert session.preview("bash", {"command": "git push origin b9"}).allowed


def test_one_that_nobody_approved_speaks_against_all(folder: Path) -> None:
    record(folder, [*(push(f"b{number}") for number in range(6)), push("main", approved=False)])
    result = run(folder)
    assert result.exit_code == 1
    assert "nothing to propose" in result.stdout


def test_folders_and_few_approvals(folder: Path) -> None:
    files = [("write", {"path": f"src/{n}.py", "text": "x"}, True) for n in range(3)]
    record(folder, files)
    assert run(folder).exit_code == 1
    plain = json.loads(run(folder, "--min-approvals", "3", "--format", "json").stdout)
    (proposal,) = plain["proposals"]
    assert proposal["covers"] == "write on paths below /w/src/, in sessions in /w"
    assert plain["newly_allowed"]["calls"] == 6, "asked, and once approved again"
    assert plain["asked"] == plain["approved"] == 3
    (folder / "layer.yaml").write_text(plain["layer"])
    session = Guard.load(folder / "layer.yaml").session("t", cwd="/w")
    assert session.preview("write", {"path": "src/9.py"}).allowed
    assert not session.preview("write", {"path": "src/../../etc/passwd"}).allowed
    assert not session.preview("write", {"path": "/etc/passwd"}).allowed


def test_a_proposal_for_a_target_allows_no_other(folder: Path) -> None:
    (folder / "policy.yaml").write_text(
        "policyguard: 1\nname: p\nclassify: {targets: [account, copy]}\n"
        "rules: {pay: {tools: [pay], effect: ask}}\njournal: {args: keep}\n"
    )
    record(folder, [("pay", {"account": "acme", "amount": n}, True) for n in range(5)])
    plain = json.loads(run(folder, "--format", "json").stdout)
    (folder / "layer.yaml").write_text(plain["layer"])
    session = Guard.load(folder / "layer.yaml").session("t", cwd="/w")
    assert session.preview("pay", {"account": "acme", "amount": 9}).allowed
    for args in ({"account": "other"}, {"account": "acme", "copy": "other"}, {"amount": 9}):
        assert not session.preview("pay", args).allowed, args


def test_without_arguments_only_tools_are_alike(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY.replace("args: keep", "args: hash"))
    record(folder, [push(f"b{number}") for number in range(5)])
    plain = json.loads(run(folder, "--format", "json").stdout)
    assert [one["covers"] for one in plain["proposals"]] == ["any call of bash, in sessions in /w"]
    (folder / "layer.yaml").write_text(plain["layer"])
    guard = Guard.load(folder / "layer.yaml")
    assert guard.session("here", cwd="/w").preview("bash", push("b9")[1]).allowed
    assert not guard.session("there", cwd="/elsewhere").preview("bash", push("b9")[1]).allowed
