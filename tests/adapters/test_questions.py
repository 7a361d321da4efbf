"""Calls that wait for a person are listed and answered from a terminal, also after a crash."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.conftest import StartService
from tests.adapters.running_service import RunningService

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix sockets")

POLICY = """
policyguard: 1
name: desk
patterns: {secret_key: "AKIA[A-Z0-9]{16}"}
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


_numbers = itertools.count(1)


@pytest.fixture
def session() -> str:
    """The name of a session that no other test has."""
    return f"s{next(_numbers)}"


@pytest.fixture
def service(shared_service: RunningService) -> Iterator[RunningService]:
    """A service where nothing waits."""
    yield shared_service
    for one in shared_service.ask("/v1/approvals")[1]["approvals"]:
        shared_service.ask("/v1/deny", session=one["session"], call=one["call"], by="the test")


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


def test_a_call_waits_until_it_is_approved(service: RunningService, session: str) -> None:
    assert desk(service, "list") == (0, "no call waits for an approval\n")
    asked = service.check(session, "deploy", args=ARGS, call="h1", agent="clerk")
    assert asked["effect"] == "ask"
    _, shown = desk(service, "list")
    assert "h1  deploy" in shown
    assert "\x1b" not in shown
    assert "AKIA" not in shown
    assert f"session   {session} (agent clerk)" in shown
    assert "deploying needs a yes" in shown
    code, said = desk(service, "approve", "h1", "--by", "ann")
    assert (code, "is approved" in said) == (0, True)
    assert desk(service, "list")[1] == "no call waits for an approval\n"
    assert service.check(session, "deploy", args=ARGS, call="h2", agent="clerk")["allowed"]


def test_a_rule_may_need_two_people_with_a_label(service: RunningService, session: str) -> None:
    service.check(session, "pay", args={"eur": 5}, call="h1")

    def approved(by: str, *labels: str) -> tuple[int, list[str]]:
        code, _ = desk(service, "approve", "h1", "--by", by, *labels)
        found = json.loads(desk(service, "list", "--format", "json")[1])
        return code, found[0]["approved_by"] if found else []

    assert approved("ann") == (1, [])
    assert approved("bob", "--label", "boss") == (1, ["bob"])
    assert approved("bob", "--label", "boss") == (1, ["bob"])
    assert "needs     one of boss" in desk(service, "list")[1]
    assert approved("ann", "--label", "boss") == (0, [])
    assert service.check(session, "pay", args={"eur": 5}, call="h2")["allowed"]


def test_a_killed_service_loses_no_question(
    start_service: StartService,
) -> None:
    service = start_service()
    service.check("s", "deploy", args={"to": "x"}, call="h1")
    service.process.kill()
    service.process.wait()
    again = start_service()
    assert "h1  deploy" in desk(again, "list")[1]
    assert desk(again, "approve", "h1", "--by", "ann")[0] == 0
    assert again.check("s", "deploy", args={"to": "x"}, call="h2")["allowed"]


def test_a_denied_call_says_so_to_the_model(service: RunningService, session: str) -> None:
    args = {"to": "x"}
    service.check(session, "deploy", args=args, call="h1")
    assert desk(service, "deny", "h1", "--by", "ann", "-m", "use staging") == (
        0,
        "h1 is denied; the agent reads why with its next result\n",
    )
    assert desk(service, "list")[1] == "no call waits for an approval\n"
    again = service.check(session, "deploy", args=args, call="h2")
    assert (again["effect"], "denied by ann: use staging" in again["message"]) == ("block", True)
    assert "no call `h1` waits" in desk(service, "approve", "h1", "--by", "bob")[1]


def test_unanswered_calls_run_only_where_no_one_answers(
    start_service: StartService, policy_file: Path
) -> None:
    lenient = "{count: 1, within: 1h, otherwise: allow}"
    policy_file.write_text(POLICY.replace("{count: 2, within: 1h, from: [boss]}", lenient))
    service = start_service()
    assert service.check("s", "pay", args={"eur": 1}, call="h1")["allowed"]
    desk(service, "list")  # now someone does
    assert service.check("s", "pay", args={"eur": 2}, call="h2")["effect"] == "ask"


def test_of_two_answers_the_second_is_told_of_the_first(
    service: RunningService, session: str
) -> None:
    service.check(session, "deploy", args={"to": "x"}, call="h1")
    status, first = service.ask("/v1/deny", session=session, call="h1", by="ann")
    assert (status, first) == (200, {"denied": True})
    _, second = service.ask("/v1/approve", session=session, call="h1", by="bob")
    assert second == {"approved": False, "detail": "ann has denied it"}


@pytest.mark.parametrize(("path", "effect"), [("/v1/approve", "allow"), ("/v1/deny", "block")])
def test_a_check_may_wait_for_its_answer(
    service: RunningService, session: str, path: str, effect: str
) -> None:
    found: list[dict[str, object]] = []
    call = {"session": session, "tool": "deploy", "args": {"to": "x"}, "call": "h1", "wait": 60}
    waiting = threading.Thread(target=lambda: found.append(service.ask("/v1/check", **call)[1]))
    waiting.start()
    while not service.ask("/v1/approvals")[1]["approvals"]:
        time.sleep(0.01)
    assert service.check(session, "ls")["allowed"]  # others go on meanwhile
    service.ask(path, session=session, call="h1", by="ann")
    waiting.join(30)
    assert found[0]["effect"] == effect


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("/v1/approve", ""),
        ("/v1/deny", '"permissionDecision":"deny"'),
        ("", '"permissionDecision":"ask"'),
    ],
)
def test_a_hook_may_wait_for_its_answer(
    service: RunningService, session: str, policy_file: Path, path: str, output: str
) -> None:
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": session,
        "cwd": str(service.store.parent),
        "tool_name": "deploy",
        "tool_input": {"to": "x"},
        "tool_use_id": "h1",
    }
    hook = subprocess.Popen(
        [
            *(sys.executable, "-m", "policyguard.adapters.client.hook_command", "claude-code"),
            *("--policy", str(policy_file), "--store", str(service.store)),
            *("--socket", str(service.socket), "--wait", "60" if path else "1"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hook.stdin is not None
    hook.stdin.write(json.dumps(event))
    hook.stdin.close()
    hook.stdin = None
    while path and not service.ask("/v1/approvals")[1]["approvals"]:
        time.sleep(0.01)
    if path:
        service.ask(path, session=session, call="h1", by="ann")
    said, _ = hook.communicate(timeout=60)
    assert output in said
    assert (hook.returncode, bool(said)) == (0, bool(output))
    refused = [line for line in _journal(service, session) if '"event":"refused"' in line]
    assert len(refused) == (2 if path == "/v1/deny" else 1)


def _journal(service: RunningService, session: str) -> list[str]:
    folder = service.store.parent / "journal"
    return [
        line for file in folder.glob(f"{session}-*.jsonl") for line in file.read_text().splitlines()
    ]


def test_a_check_waits_no_longer_than_it_may(service: RunningService, session: str) -> None:
    call = {"session": session, "tool": "deploy", "args": {"to": "x"}, "call": "h1"}
    status, answer = service.ask("/v1/check", **call, wait=0.05)
    assert (status, answer["effect"]) == (200, "ask")
    assert service.ask("/v1/check", **call, wait=-1)[0] == 400


def test_a_remembered_yes_covers_the_tool(service: RunningService, session: str) -> None:
    service.check(session, "deploy", args={"to": "x"}, call="h1")
    remember = ("--remember", "tool", "--expires", "3600")
    assert desk(service, "approve", "h1", "--by", "ann", *remember)[0] == 0
    assert service.check(session, "deploy", args={"to": "y"}, call="h2")["allowed"]


def test_ids_that_are_not_unique_need_a_session(service: RunningService, session: str) -> None:
    for one in (f"{session}a", f"{session}b"):
        service.check(one, "deploy", args={"to": "x"}, call="h1")
    assert "waits in several sessions" in desk(service, "approve", "h1")[1]
    assert desk(service, "approve", "h1", "--session", f"{session}b")[0] == 0
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


def test_no_service_is_said(start_service: StartService) -> None:
    service = start_service()
    service.process.kill()
    service.process.wait()
    code, said = desk(service, "list")
    assert code == 2
    assert "start it with `policyguard serve`" in said
