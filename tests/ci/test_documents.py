"""What docs/ci.md and docs/editors.md show works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click import Context, Group
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain
from policyguard.lint import lint_paths
from policyguard.lint.config import read_config
from policyguard.report.findings.formats import FORMATS

ROOT = Path(__file__).parents[2]
CI = (ROOT / "docs" / "ci.md").read_text()
EDITORS = (ROOT / "docs" / "editors.md").read_text()

BEFORE = """\
policyguard: 1
name: before
extends: [core]




limits:
  default: {repeat: {max: 3}}










rules:
  no-push: {tools: [git_push], when: call.args.force}
"""


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)


def test_the_table_of_formats_is_the_one_in_the_code() -> None:
    table = CI.partition("## Formats")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(FORMATS)


def test_the_settings_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(blocks(CI, "toml")[0])
    assert read_config(tmp_path / "pyproject.toml").strict


def test_the_hooks_and_inputs_that_are_named_exist() -> None:
    found = parse((ROOT / ".pre-commit-hooks.yaml").read_text(), "x").root
    assert found is not None
    known = {hook["id"] for hook in to_plain(found)}
    assert set(re.findall(r"- id: ([\w-]+)", CI)) == known
    action = parse((ROOT / "action.yml").read_text(), "x").root
    assert action is not None
    assert {"command", "paths", "args", "format", "output"} == to_plain(action)["inputs"].keys()


def test_the_comment_that_ignores_a_finding_does(tmp_path: Path) -> None:
    rules = next(block for block in blocks(CI, "yaml") if "ignore[" in block)
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\nextends: [core]\n{rules}")
    result = lint_paths([file])
    assert (result.diagnostics, len(result.ignored)) == ([], 1)


def test_the_difference_that_it_shows_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"(\$ policyguard policy diff .*?)\n(.*?)```", CI, re.DOTALL)
    assert shown is not None
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    (tmp_path / "before" / "policyguard.yaml").write_text(BEFORE)
    after = BEFORE.replace("max: 3", "max: 5").partition("rules:")[0]
    (tmp_path / "after" / "policyguard.yaml").write_text(after)
    monkeypatch.chdir(tmp_path / "after")
    command = shown[1].split()[2:]
    assert CliRunner().invoke(main, command).stdout == shown[2]


@pytest.mark.parametrize("document", [CI, EDITORS], ids=["ci", "editors"])
def test_every_command_exists_with_its_options(document: str) -> None:
    commands = re.findall(r"[`$] ?policyguard ([a-z]+(?: [a-z]+)?)((?: --?[a-z]+)*)", document)
    assert commands
    for names, options in commands:
        command = main
        for name in names.split():
            if isinstance(command, Group):
                found = command.get_command(Context(command), name)
                assert found is not None, names
                command = found
        known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
        assert set(options.split()) <= known, (names, options)


PACKAGE = ROOT / "policyguard"
FOLDERS = {
    folder.name
    for parent in (ROOT, PACKAGE)
    for folder in parent.iterdir()
    if folder.is_dir() and not folder.name.startswith(".")
}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.[a-z]+)`(?! \(removed\))")
"""A file of the project; a decision may also name one that is gone, followed by `(removed)`."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_of_the_project_that_are_named_exist(document: Path) -> None:
    named = [name for name in _FILE.findall(document.read_text()) if name.split("/")[0] in FOLDERS]
    missing = [name for name in named if not ((ROOT / name).exists() or (PACKAGE / name).exists())]
    assert missing == []


def test_extras_are_installed_from_the_checkout() -> None:
    """The project is in no registry."""
    for document in [*DOCUMENTS, *(ROOT / "policies").rglob("*.md")]:
        assert not re.findall(r"pip install .*policyguard-engine\[", document.read_text()), document
