"""What cannot be seen of a path may lead out of the session's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard, Session
from tests.shell.shell_cases import read_case

POLICY = """\
policyguard: 1
name: deletes
extends: [core]
rules:
  delete-elsewhere:
    commands: ["rm -r|-R|--recursive", find -delete, shred]
    paths: {outside: [., /tmp]}
    message: this deletes outside the project
  delete-here:
    tools: [here]
    paths: [.]
    message: this may delete something of the project
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return Guard.load(path).session("s", cwd="/home/ann/project")


def test_deletes_outside(session: Session) -> None:
    cases = read_case("deletes_outside")

    def allowed(name: str) -> list[str]:
        return [text for text in cases[name] if session.preview("bash", {"command": text}).allowed]

    assert allowed("blocked") == []
    assert allowed("allowed") == cases["allowed"]
    assert allowed("refused") == []


def test_an_unknown_path_may_be_in_the_folder_too(session: Session) -> None:
    assert not session.preview("here", {"command": 'rm "$D"'}).allowed
    assert not session.preview("here", {"command": "rm -r x"}).allowed
    assert session.preview("here", {"command": "rm -r /tmp/x"}).allowed


def test_a_path_of_many_unknown_folders_is_read_in_no_time(session: Session) -> None:
    command = "rm -r " + "/".join(['"$D"'] * 2_000) + "/a" * 2_000 + "/.." * 1_999
    assert not session.preview("bash", {"command": command}).allowed
