"""`action.yml`: its scripts are run as GitHub's runner runs them, with bash and variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain

ROOT = Path(__file__).parents[2]
GOOD = "policyguard: 1\nname: good\nbudgets: {calls: {calls: 5}}\n"
BAD = "policyguard: 1\nname: bad\nbudget: {}\n"


def action() -> dict[str, Any]:
    root = parse((ROOT / "action.yml").read_text(), "action.yml").root
    assert root is not None
    read: dict[str, Any] = to_plain(root)
    return read


def step(name: str) -> dict[str, Any]:
    (found,) = (one for one in action()["runs"]["steps"] if one["name"] == name)
    return dict(found)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, with a policyguard where the first step would have put it."""
    monkeypatch.chdir(tmp_path)
    command = tmp_path / "temp" / "policyguard" / "bin" / "policyguard"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m policyguard "$@"\n')
    command.chmod(0o700)
    return tmp_path


def run(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    defaults = {name: one["default"] for name, one in action()["inputs"].items()}
    given = {**defaults, **inputs}
    one = step("Run")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(folder / "temp")}
    for variable, expression in one["env"].items():
        name = expression.removeprefix("${{ inputs.").removesuffix(" }}")
        environ[variable] = given.pop(name)
    assert given == {}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]]
    return subprocess.run(script, cwd=folder, env=environ, capture_output=True, text=True)


def test_it_has_what_a_composite_action_needs() -> None:
    read = action()
    assert {"name", "description", "inputs", "runs"} == read.keys()
    assert read["runs"]["using"] == "composite"
    for one in read["runs"]["steps"]:
        assert one["shell"] == "bash"
        assert "${{" not in one["run"], "what a workflow is given must not become a script"
    for name, one in read["inputs"].items():
        assert one.keys() == {"description", "default"}, name


def test_findings_are_annotations_and_the_step_fails(runner: Path) -> None:
    Path("policyguard.yaml").write_text(BAD)
    ran = run(runner)
    assert ran.returncode == 1
    assert ran.stdout.startswith("::error file=policyguard.yaml,line=3,")
    Path("policyguard.yaml").write_text(GOOD)
    assert (run(runner).returncode, run(runner).stdout.strip()) == (0, "")


def test_paths_and_arguments_are_one_a_line(runner: Path) -> None:
    Path("a b.yaml").write_text(BAD)
    Path("good.yaml").write_text(GOOD)
    ran = run(runner, paths="a b.yaml\ngood.yaml\n", args="--format\ntext\n--strict")
    assert ran.returncode == 1
    assert "--> a b.yaml:3:1" in ran.stdout
    assert run(runner, paths="good.yaml").returncode == 0
    assert run(runner, paths="nowhere.yaml").returncode == 2


def test_the_report_can_go_to_a_file(runner: Path) -> None:
    Path("policyguard.yaml").write_text(BAD)
    ran = run(runner, format="sarif", output="out.sarif")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert '"ruleId": "schema/unknown-key"' in Path("out.sarif").read_text()


def test_other_commands_can_be_run(runner: Path) -> None:
    Path("policyguard.yaml").write_text(GOOD)
    step_ = "{call: {a: {}}, expect: block}"
    tests = f"policy: policyguard.yaml\ntests: [{{name: x, steps: [{step_}]}}]\n"
    Path("tests.yaml").write_text(tests)
    ran = run(runner, command="test")
    assert ran.returncode == 1
    assert ran.stdout.startswith("::error file=tests.yaml,line=2,")
    trace = str(ROOT / "docs" / "demo" / "trace.jsonl")
    ran = run(runner, command="simulate", paths=trace, args="--policy\ncore")
    assert ran.returncode == 0
    assert "result  " in ran.stdout
    ran = run(runner, command="hook")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "hook is not lint, test or simulate" in ran.stderr


def test_inputs_are_never_run(runner: Path) -> None:
    """What bash does with them, so that no policyguard is needed."""
    given = runner / "given"
    (runner / "temp" / "policyguard" / "bin" / "policyguard").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {given}\n'
    )
    Path("policyguard.yaml").write_text(GOOD)
    for text in (
        "$(touch hacked)",
        '"; touch hacked; "',
        "`touch hacked`",
        "--config=x;touch hacked",
    ):
        run(runner, paths=text, args=text)
        run(runner, format=text)
        run(runner, command=text)
        assert given.read_text().splitlines().count(text) == 3
    assert not Path("hacked").exists()


@pytest.mark.slow
def test_it_installs_its_own_repository(runner: Path) -> None:
    project = runner / "project"
    project.mkdir()
    for name in ("policyguard", "policies", "schemas"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    one = step("Install policyguard")
    assert one["env"] == {"SOURCE": "${{ github.action_path }}"}
    temp = runner / "fresh"
    environ = {**os.environ, "SOURCE": str(project), "RUNNER_TEMP": str(temp)}
    environ.pop("PYTHONPATH", None)
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]]
    ran = subprocess.run(script, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    Path("policyguard.yaml").write_text(GOOD)
    command = [str(temp / "policyguard" / "bin" / "policyguard"), "lint", "--strict"]
    linted = subprocess.run(command, cwd=runner, env=environ, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout + linted.stderr
