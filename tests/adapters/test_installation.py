"""`policyguard hook install` writes its own entries, and leaves all others alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.adapters.installation.installations import INSTALLATIONS
from policyguard.cli import main

OWN = {
    "model": "opus",
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine.sh"}]}]
    },
}


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["hook", *arguments], input=text)


def install(settings: Path, *options: str, text: str | None = None) -> Result:
    store = settings.with_name("s.db")
    arguments = ["--policy", "core", "--store", str(store), "--settings", str(settings)]
    return run("install", "claude-code", *arguments, *options, text=text)


def test_installing_and_removing_gives_back_what_was_there(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(OWN, indent=2) + "\n")
    settings.chmod(0o640)
    before = settings.read_text()
    assert install(settings, "--yes").exit_code == 0
    hooks = json.loads(settings.read_text())["hooks"]
    assert hooks["PreToolUse"][0] == OWN["hooks"]["PreToolUse"][0]  # type: ignore[index]  # a literal
    (ours,) = hooks["PreToolUse"][1]["hooks"]
    assert ours["onFailure"] == "block"
    assert "--report" not in ours["command"]
    assert "--report" in hooks["Stop"][0]["hooks"][0]["command"]
    assert settings.stat().st_mode & 0o777 == 0o640
    assert run("uninstall", "claude-code", "--settings", str(settings), "--yes").exit_code == 0
    assert settings.read_text() == before


def test_installing_twice_changes_nothing(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes")
    first = settings.read_text()
    result = install(settings, "--yes")
    assert settings.read_text() == first
    assert "as it should be" in result.output


def test_the_diff_is_shown_and_asked_about(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    result = install(settings, text="n\n")
    assert result.exit_code == 1
    assert '+    "PreToolUse": [' in result.output.splitlines()
    assert not settings.exists()
    assert install(settings, text="y\n").exit_code == 0
    assert settings.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}'])
def test_settings_that_cannot_be_read_stay_as_they_are(tmp_path: Path, text: str) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(text)
    result = install(settings, "--yes")
    assert result.exit_code == 2
    assert "mend" in result.output
    assert settings.read_text() == text


def test_a_policy_that_does_not_load_is_not_installed(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("policyguard: 1\nname: x\nrulez: {}\n")
    settings = tmp_path / "settings.json"
    result = run(
        "install", "claude-code", "--policy", str(policy), "--settings", str(settings), "--yes"
    )
    assert result.exit_code == 2
    assert "rulez" in result.output
    assert not settings.exists()


def test_commands_name_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my policy.yaml").write_text("policyguard: 1\nname: x\n")
    settings = tmp_path / "settings.json"
    run(
        *("install", "claude-code", "--policy", "my policy.yaml", "--store", "s.db"),
        *("--settings", str(settings), "--yes"),
    )
    hooks = json.loads(settings.read_text())["hooks"]
    parts = shlex.split(hooks["PreToolUse"][0]["hooks"][0]["command"])
    assert str(tmp_path / "my policy.yaml") in parts
    assert str(tmp_path / "s.db") in parts


def test_doctor_says_whether_hooks_are_installed(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    result = run("doctor", "claude-code", "--settings", str(settings))
    assert result.exit_code == 1
    assert "NOT INSTALLED" in result.output
    install(settings, "--yes")
    result = run("doctor", "claude-code", "--settings", str(settings))
    assert result.exit_code == 0
    assert "hooks installed" in result.output


@pytest.mark.parametrize("host", [*INSTALLATIONS])
def test_a_host_that_is_not_installed_cannot_be_proved(host: str, tmp_path: Path) -> None:
    result = run("doctor", host, "--prove", "--program", "no-such-program")
    assert result.exit_code == 2
    assert "no-such-program" in result.output
