"""Files that commands name in words of their own: in code, scripts, fields of forms and globs."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, Session
from tests.shell.shell_cases import read_case

POLICY = """\
policyguard: 1
name: named-paths
extends: [core]
rules:
  secrets:
    paths: ["**/.env", "**/.env.*", "**/*.pem"]
    message: this may show a password
  settings:
    paths: ["**/policyguard.yaml"]
    unless: call.command.read_only()
    message: this may change settings
  elsewhere:
    commands: [rm, unlink, "* > /etc/**"]
    paths: {outside: [., /tmp]}
    message: this changes what is outside the project
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return Guard.load(path).session("s", cwd="/home/ann/project")


@pytest.mark.parametrize("group", read_case("named_paths"))
def test_named_paths(session: Session, group: str) -> None:
    cases = read_case("named_paths")[group]

    def allowed(name: str) -> list[str]:
        return [text for text in cases[name] if session.preview("bash", {"command": text}).allowed]

    assert allowed("blocked") == []
    assert allowed("allowed") == cases["allowed"]
