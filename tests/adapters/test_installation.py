"""`policyguard hook install` writes its own entries, and leaves all others alone."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard.adapters.installation import jsonc
from policyguard.adapters.installation.hook_entries import block_on_failure
from policyguard.adapters.installation.installations import INSTALLATIONS
from policyguard.cli import main


def _nested(event: str) -> dict[str, Any]:
    hook = {"type": "command", "command": "mine.sh"}
    return {"model": "opus", "hooks": {event: [{"matcher": "Bash", "hooks": [hook]}]}}


OWN = {
    "claude-code": _nested("PreToolUse"),
    "codex": _nested("PreToolUse"),
    "copilot-cli": {
        "version": 1,
        "hooks": {"preToolUse": [{"type": "command", "bash": "mine.sh"}]},
    },
    "gemini-cli": _nested("BeforeTool"),
}
"""Settings with a hook of the user's before each call, for the hosts that have it in JSON."""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the record of changes out of the user's own state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


json_hosts = pytest.mark.parametrize("host", [*OWN])
all_hosts = pytest.mark.parametrize("host", [*INSTALLATIONS])


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["hook", *arguments], input=text)


def install(
    settings: Path, *options: str, host: str = "claude-code", text: str | None = None
) -> Result:
    store = settings.with_name("s.db")
    arguments = ["--policy", "core", "--store", str(store), "--settings", str(settings)]
    return run("install", host, *arguments, *options, text=text)


@json_hosts
def test_installing_and_removing_gives_back_what_was_there(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(OWN[host], indent=2) + "\n")
    settings.chmod(0o640)
    before = settings.read_text()
    assert install(settings, "--yes", host=host).exit_code == 0
    (event, mine), *_ = OWN[host]["hooks"].items()
    hooks = json.loads(settings.read_text())["hooks"]
    assert hooks[event][0] == mine[0]
    (ours,) = hooks[event][1].get("hooks", [hooks[event][1]])
    command = ours.get("command") or ours["bash"]
    assert "--report" not in command
    assert ours.get("onFailure") == "block" or command.endswith("exit 2; }")
    assert all("--report" in json.dumps(hooks[other]) for other in hooks if other != event)
    assert settings.stat().st_mode & 0o777 == 0o640
    assert run("uninstall", host, "--settings", str(settings), "--yes").exit_code == 0
    assert settings.read_text() == before


@json_hosts
@pytest.mark.parametrize("again", [False, True])
def test_removing_gives_back_the_form_too(host: str, tmp_path: Path, *, again: bool) -> None:
    settings = tmp_path / "settings.json"
    before = json.dumps(OWN[host], indent="\t").replace("\n", "\r\n")
    settings.write_text(before, newline="")
    install(settings, "--yes", host=host)
    if again:
        install(settings, "--yes", "--wait", "300", host=host)
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert settings.read_bytes() == before.encode()


@json_hosts
def test_what_was_changed_since_is_kept(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(OWN[host], indent="\t"))
    install(settings, "--yes", host=host)
    settings.write_text(settings.read_text().replace("mine.sh", "other.sh"))
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert settings.read_text() == json.dumps(OWN[host], indent="\t").replace("mine", "other")


@json_hosts
def test_hooks_that_were_changed_and_installed_anew_are_removed(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(OWN[host]))
    install(settings, "--yes", host=host)
    settings.write_text(settings.read_text().replace("20", "21"))
    assert install(settings, "--yes", host=host).exit_code == 0
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert json.loads(settings.read_text()) == OWN[host]


@json_hosts
def test_removing_what_is_not_there_changes_nothing(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    before = json.dumps(OWN[host], indent="\t")
    settings.write_text(before)
    result = run("uninstall", host, "--settings", str(settings), "--yes")
    assert "as it should be" in result.output
    assert settings.read_text() == before


@all_hosts
def test_an_empty_file_is_empty_again(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.touch()
    for options in ([], ["--wait", "300"]):
        assert install(settings, "--yes", *options, host=host).exit_code == 0
        assert settings.read_text()
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert settings.read_bytes() == b""


@all_hosts
def test_a_file_that_was_not_there_is_removed(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", host=host)
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert not settings.exists()


COMMENTED = """\
// mine
{
  "model": "opus", // the best
  "hooks": {
    // before each tool
    "BeforeTool": [
      {"matcher": "x", "hooks": [{"type": "command", "command": "mine.sh"}]} /* one */
      // {"matcher": "y"}
    ] // the list
  }
  /* the end */
}
// after it
"""


COMMENT = r"//.*|/\*.*?\*/"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_comments_stay(tmp_path: Path, newline: str) -> None:
    settings = tmp_path / "settings.json"
    before = COMMENTED.replace("\n", newline)
    settings.write_text(before, newline="")
    assert install(settings, "--yes", host="gemini-cli").exit_code == 0
    written = settings.read_bytes().decode()
    assert re.findall(COMMENT, written) == re.findall(COMMENT, before)
    hooks = jsonc.parse(written)["hooks"]
    assert [len(hooks["BeforeTool"]), len(hooks["AfterTool"])] == [2, 1]
    assert written.count("\n") == written.count(newline)
    assert "hooks installed" in run("doctor", "gemini-cli", "--settings", str(settings)).output
    settings.write_text(written.replace("opus", "other"), newline="")  # so it is not put back
    run("uninstall", "gemini-cli", "--settings", str(settings), "--yes")
    assert settings.read_bytes().decode() == before.replace("opus", "other")


UNREAD = [
    ("claude-code", "{} // x", "comment"),
    ("claude-code", '{"a": 1,}', "trailing comma"),
    ("codex", "/* x */ {}", "comment"),
    ("codex", '{"hooks": {},}', "trailing comma"),
    ("codex", "\ufeff{}", "byte order mark"),
    ("copilot-cli", "{} // x", "comment"),
    ("copilot-cli", '{"version": 1,}', "trailing comma"),
    ("copilot-cli", "\ufeff{}", "byte order mark"),
    ("gemini-cli", '{"a": [1,]}', "trailing comma"),
    ("gemini-cli", "\ufeff{}", "byte order mark"),
]
"""What keeps a host from using the hooks of a file, without a word."""


@pytest.mark.parametrize(("host", "text", "name"), UNREAD)
def test_settings_that_the_host_does_not_read_are_refused(
    host: str, text: str, name: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(f"\n{text}" if text[0] != "\ufeff" else text)
    before = settings.read_bytes()
    result = install(settings, "--yes", host=host)
    assert result.exit_code == 2
    line = 1 if text[0] == "\ufeff" else 2
    assert f"{settings}: line {line} has a {name}" in result.output
    assert settings.read_bytes() == before


@pytest.mark.parametrize(("host", "text", "name"), UNREAD)
def test_doctor_says_that_the_host_does_not_read_them(
    host: str, text: str, name: str, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", host=host)
    written = settings.read_text()
    if name == "comment":
        settings.write_text(f"{written}// x\n")
    elif name == "trailing comma":
        settings.write_text(f"{written.rstrip().removesuffix('}')},}}")
    else:
        settings.write_text(f"\ufeff{written}")
    result = run("doctor", host, "--settings", str(settings))
    assert result.exit_code == 1
    assert "NOT IN FORCE: line " in result.output
    assert f"has a {name}" in result.output
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert not settings.exists() or "hook_command" not in settings.read_text()


def test_a_hook_in_a_comment_is_not_installed(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", host="gemini-cli")
    lines = settings.read_text().splitlines()
    settings.write_text("{}\n" + "\n".join(f"// {line}" for line in lines))
    result = run("doctor", "gemini-cli", "--settings", str(settings))
    assert "NOT INSTALLED" in result.output


def test_hooks_with_comments_in_their_entries_are_taken_out(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    assert install(settings, "--yes", host="gemini-cli").exit_code == 0
    written = settings.read_text().replace('"matcher": ".*",', '"matcher": ".*", // any tool')
    settings.write_text(written)
    assert install(settings, "--yes", host="gemini-cli").exit_code == 0
    assert run("uninstall", "gemini-cli", "--settings", str(settings), "--yes").exit_code == 0
    left = settings.read_text()
    assert "policyguard" not in left
    assert "// any tool" in left


def test_a_key_that_is_there_twice_is_said(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    ours = {"hooks": [{"type": "command", "command": "policyguard-hook gemini-cli"}]}
    settings.write_text(
        '{"hooks": {"Stop": [{"command": "mine.sh"}]}, '
        f'"hooks": {{"BeforeTool": [{json.dumps(ours)}]}}}}'
    )
    before = settings.read_bytes()
    for result in (
        install(settings, "--yes", host="gemini-cli"),
        run("uninstall", "gemini-cli", "--settings", str(settings), "--yes"),
    ):
        assert result.exit_code == 2
        assert "there twice" in result.output
    assert settings.read_bytes() == before


@pytest.mark.parametrize(("host", "text"), [("codex", "{}"), ("copilot-cli", '{"version": 1}')])
def test_a_file_without_our_hooks_is_not_removed(host: str, text: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(text)
    assert "NOT INSTALLED" in run("doctor", host, "--settings", str(settings)).output
    run("uninstall", host, "--settings", str(settings), "--yes")
    assert settings.read_text() == text


@pytest.mark.parametrize("host", ["codex", "copilot-cli", "opencode"])
def test_a_file_of_hooks_alone_is_removed_with_them(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "policyguard.file"
    install(settings, "--yes", host=host)
    assert settings.exists()
    assert run("uninstall", host, "--settings", str(settings), "--yes").exit_code == 0
    assert not settings.exists()


@all_hosts
def test_a_proof_may_put_in_a_broken_hook(host: str) -> None:
    """Its command is none of ours."""
    text = INSTALLATIONS[host].install("", lambda report: f"broken {report}", 0)
    assert "broken False" in text


@all_hosts
def test_installing_twice_changes_nothing(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", host=host)
    first = settings.read_text()
    result = install(settings, "--yes", host=host)
    assert settings.read_text() == first
    assert "as it should be" in result.output


@all_hosts
def test_the_host_waits_longer_than_the_hook_takes(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", host=host)
    limits = {
        "claude-code": '"timeout": 20,',
        "codex": '"timeout": 20\n',
        "copilot-cli": '"timeoutSec": 20\n',
        "gemini-cli": '"timeout": 20000\n',
        "opencode": "MILLISECONDS = 12000\n",
    }
    assert limits[host] in settings.read_text()


@pytest.mark.parametrize("host", list(INSTALLATIONS))
def test_the_host_also_waits_for_a_person(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    install(settings, "--yes", "--wait", "300", host=host)
    text = settings.read_text()
    limits = {
        "claude-code": '"timeout": 320,',
        "codex": '"timeout": 320\n',
        "copilot-cli": '"timeoutSec": 320\n',
        "gemini-cli": '"timeout": 320000\n',
        "opencode": "MILLISECONDS = 312000\n",
    }
    assert text.count(limits[host]) == 1  # of the checks alone
    assert text.count("--wait 300") == 1


def test_the_diff_is_shown_and_asked_about(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    result = install(settings, text="n\n")
    assert result.exit_code == 1
    assert '+    "PreToolUse": [' in result.output.splitlines()
    assert not settings.exists()
    assert install(settings, text="y\n").exit_code == 0
    assert settings.exists()


@json_hosts
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{,}",
        '{"a": [,]}',
        '{"a": NaN}',
        '{\u00a0"a": 1}',
        '{"hooks": []}',
        '{"hooks": {"PreToolUse": {}}}',
    ],
)
def test_settings_that_cannot_be_read_stay_as_they_are(
    host: str, tmp_path: Path, text: str
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(text)
    result = install(settings, "--yes", host=host)
    assert result.exit_code == 2
    assert "mend" in result.output
    assert settings.read_text() == text


def test_another_plugin_is_not_overwritten(tmp_path: Path) -> None:
    settings = tmp_path / "plugin.js"
    settings.write_text("export const Mine = async () => ({})\n")
    result = install(settings, "--yes", host="opencode")
    assert result.exit_code == 2
    assert "not policyguard's" in result.output
    run("uninstall", "opencode", "--settings", str(settings), "--yes")
    assert settings.read_text() == "export const Mine = async () => ({})\n"


def test_what_is_left_to_do_is_said(tmp_path: Path) -> None:
    result = install(tmp_path / "hooks.json", "--yes", host="codex")
    assert "trust the hooks with `/hooks`" in result.output
    assert "unified_exec_tty" in result.output


@pytest.mark.parametrize(
    ("command", "code"),
    [("true", 0), ("exit 0", 0), ("exit 1", 2), ("/nonexistent/x", 2), ("sh -c 'kill -9 $$'", 2)],
)
def test_a_hook_that_fails_exits_with_the_code_that_refuses(command: str, code: int) -> None:
    line = block_on_failure(f"sh -c {shlex.quote(command)}")
    run = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert ("refused" in run.stderr) == bool(code)


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


@all_hosts
def test_doctor_says_whether_hooks_are_installed(host: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    result = run("doctor", host, "--settings", str(settings))
    assert result.exit_code == 1
    assert "NOT INSTALLED" in result.output
    install(settings, "--yes", host=host)
    result = run("doctor", host, "--settings", str(settings))
    assert result.exit_code == 0
    assert "hooks installed" in result.output


@pytest.mark.parametrize("host", [*INSTALLATIONS])
def test_a_host_that_is_not_installed_cannot_be_proved(host: str, tmp_path: Path) -> None:
    result = run("doctor", host, "--prove", "--program", "no-such-program")
    assert result.exit_code == 2
    assert "no-such-program" in result.output
