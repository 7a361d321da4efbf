"""The README and its examples are correct."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from policyguard.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_policy_lints_and_its_tests_pass(tmp_path: Path) -> None:
    policy, tests = _blocks("yaml")
    (tmp_path / "policyguard.yaml").write_text(policy)
    (tmp_path / "refunds.tests.yaml").write_text(tests)
    runner = CliRunner()
    linted = runner.invoke(main, ["lint", str(tmp_path / "policyguard.yaml"), "--strict"])
    assert linted.exit_code == 0, linted.stdout
    tested = runner.invoke(main, ["test", str(tmp_path)])
    assert tested.exit_code == 0, tested.stdout


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"TOOLS": {"read_file": lambda path: Path(path).read_text()}}
    first, *remaining = _blocks("python")
    exec(first, names)  # noqa: S102 - our own README
    missing = [names["call_tool"]("read_file", {"path": "gone"}) for _ in range(3)]
    assert all("No such file" in text for text in missing)
    assert ["was not run" in text for text in missing] == [False, False, True]
    for block in remaining:
        exec(block, names)  # noqa: S102 - our own README


def test_demo_refuses_the_loop() -> None:
    script = ROOT / "docs" / "demo" / "refused_loop.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert result.stdout.count("\u2192 read_file") == 3
    assert "was not run" in result.stdout
    assert "was&#160;not&#160;run" in script.with_suffix(".svg").read_text()


def test_lint_error_is_the_one_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"\$ policyguard lint policyguard.yaml\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    policy = _blocks("yaml")[0].replace("when: call.args", "when: cal.args")
    Path("policyguard.yaml").write_text(policy)
    printed = CliRunner().invoke(main, ["lint", "policyguard.yaml"]).stdout
    assert shown[1].strip() == printed.strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_has_a_target(document: Path) -> None:
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (document.parent / target).exists(), target


def test_every_command_exists() -> None:
    for document in DOCUMENTS:
        for words in re.findall(r"\$ policyguard ((?:[a-z]+ ?){1,2})", document.read_text()):
            command = words.split()
            subcommand = main.get_command(click.Context(main), command[0])
            assert subcommand is not None, words


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(
        r"`?make ([a-z-]+)`?", README + (ROOT / "CONTRIBUTING.md").read_text()
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
