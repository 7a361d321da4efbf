"""Calls that wait for a person are listed and answered from a terminal, also after a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.conftest import StartService
from tests.adapters.running_service import RunningService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

POLICY = """
policyguard: 1
name: desk
extends: [core]
journal: {redact: [secret_*]}
rules:
  deploys: {tools: [deploy], effect: ask, message: deploying needs a yes}
  payments:
    tools: [pay]
    effect: ask
    message: paying needs two
    approval: {count: 2, within: 1h, from: [boss]}
"""
ARGS = {"to": "shop\x1b[31m", "key": "AKIAIOSFODNN7EXAMPLE"}


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def desk(service: RunningService, *arguments: str) -> tuple[int, str]:
    """Run `policyguard approvals`; return its exit code and all that it says."""
    command = [sys.executable, "-m", "policyguard", "approvals", *arguments]
    done = subprocess.run(
        [*command, "--socket", str(service.socket)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "HOME": str(service.socket.parent), "LANG": "C.UTF-8"},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_call_waits_until_it_is_approved(service: RunningService) -> None:
    assert desk(service, "list") == (0, "no call waits for an approval\n")
    asked = service.check("s", "deploy", args=ARGS, call="h1", agent="clerk")
    assert asked["effect"] == "ask"
    _, shown = desk(service, "list")
    assert "h1  deploy" in shown
    assert "\x1b" not in shown
    assert "AKIA" not in shown
    assert "session   s (agent clerk)" in shown
    assert "deploying needs a yes" in shown
    code, said = desk(service, "approve", "h1", "--by", "ann")
    assert (code, "is approved" in said) == (0, True)
    assert desk(service, "list")[1] == "no call waits for an approval\n"
    assert service.check("s", "deploy", args=ARGS, call="h2", agent="clerk")["allowed"]


def test_a_rule_may_need_two_people_with_a_label(service: RunningService) -> None:
    service.check("s", "pay", args={"eur": 5}, call="h1")

    def approved(by: str, *labels: str) -> tuple[int, list[str]]:
        code, _ = desk(service, "approve", "h1", "--by", by, *labels)
        found = json.loads(desk(service, "list", "--format", "json")[1])
        return code, found[0]["approved_by"] if found else []

    assert approved("ann") == (1, [])
    assert approved("bob", "--label", "boss") == (1, ["bob"])
    assert approved("bob", "--label", "boss") == (1, ["bob"])
    assert "needs     one of boss" in desk(service, "list")[1]
    assert approved("ann", "--label", "boss") == (0, [])
    assert service.check("s", "pay", args={"eur": 5}, call="h2")["allowed"]


def test_a_killed_service_loses_no_question(
    service: RunningService, start_service: StartService
) -> None:
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    service.process.kill()
    service.process.wait()
    again = start_service()
    again.check("s", "ls")
    assert "h1  deploy" in desk(again, "list")[1]
    assert desk(again, "approve", "h1", "--by", "ann")[0] == 0
    assert again.check("s", "deploy", args={"to": "x"}, call="h2")["allowed"]


def test_a_remembered_yes_covers_the_tool(service: RunningService) -> None:
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    remember = ("--remember", "tool", "--expires", "3600")
    assert desk(service, "approve", "h1", "--by", "ann", *remember)[0] == 0
    assert service.check("s", "deploy", args={"to": "y"}, call="h2")["allowed"]


def test_ids_that_are_not_unique_need_a_session(service: RunningService) -> None:
    for session in ("s", "t"):
        service.check(session, "deploy", args={"to": "x"}, call="h1")
    assert "waits in several sessions" in desk(service, "approve", "h1")[1]
    assert desk(service, "approve", "h1", "--session", "t")[0] == 0
    assert desk(service, "approve", "nope") == (
        2,
        "policyguard approvals approve: no call `nope` waits for an approval\n",
    )


def test_a_service_with_admins_wants_their_token(
    start_service: StartService, tmp_path: Path
) -> None:
    token = tmp_path / "admin"
    service = start_service("--admin-token-file", str(token))
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    code, said = desk(service, "approve", "h1", "--by", "ann")
    assert (code, "token" in said) == (2, True)
    assert desk(service, "approve", "h1", "--by", "ann", "--admin-token-file", str(token))[0] == 0
    assert desk(service, "watch")[0] == 2


def test_no_service_is_said(tmp_path: Path, service: RunningService) -> None:
    service.process.kill()
    service.process.wait()
    code, said = desk(service, "list")
    assert code == 2
    assert "start it with `policyguard serve`" in said
