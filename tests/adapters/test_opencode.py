"""OpenCode: what the events of policyguard's plugin mean, and what the plugin does with answers."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.installation.opencode import OPENCODE
from policyguard.adapters.sessions import ServedSessions, SessionRequest

NOTHING = HookAnswer()


class PluginEvents:
    """One session, as the plugin reports it."""

    def __init__(
        self, sessions: ServedSessions, session: str = "ses_1", parent: Any = None
    ) -> None:
        self._sessions = sessions
        self._common = {"session": session, "parent": parent, "cwd": "/home/ann/x"}
        self._number = 0
        self._latest: dict[str, Any] = {}

    def send(self, event: str, **fields: Any) -> HookAnswer:
        body = json.dumps({**self._common, "event": event, **fields}).encode()
        return answer_hook(self._sessions, "opencode", body)

    def before(self, tool: str, args: dict[str, Any]) -> HookAnswer:
        self._number += 1
        self._latest = {"call": f"call_{self._number}", "tool": tool, "args": args}
        return self.send("before", **self._latest)

    def after(self, **result: Any) -> HookAnswer:
        return self.send("after", **self._latest, **result)


@pytest.fixture
def host(sessions: ServedSessions) -> PluginEvents:
    return PluginEvents(sessions)


ALLOWED = HookAnswer({"allow": True})


def refusal(answer: HookAnswer) -> str:
    assert answer.output is not None
    return str(answer.output["refuse"])


def test_a_refused_call_gets_its_reason(host: PluginEvents) -> None:
    assert host.before("bash", {"command": "ls"}) == ALLOWED
    assert "the canary stays" in refusal(host.before("delete", {"path": "canary"}))


def test_a_missing_file_is_read_twice_only(host: PluginEvents) -> None:
    for _ in range(2):
        assert host.before("read", {"filePath": "/x"}) == ALLOWED
        host.after(error="File not found: /x")
    assert "failed twice" in refusal(host.before("read", {"filePath": "/x"}))


def test_a_command_that_fails_twice_is_refused(host: PluginEvents) -> None:
    for _ in range(2):
        assert host.before("bash", {"command": "cat /x"}) == ALLOWED
        host.after(result="cat: /x: No such file or directory\n", exit_code=1)
    assert "failed twice" in refusal(host.before("bash", {"command": "cat /x"}))


def test_advice_is_returned(host: PluginEvents) -> None:
    for _ in range(3):
        host.before("grep", {"pattern": "x"})
        answer = host.after(result="nothing found", exit_code=None)
    assert answer.output is not None
    assert "A note on `grep`" in answer.output["advice"]


def test_sub_agents_share_the_budget_of_the_main_agent(
    host: PluginEvents, sessions: ServedSessions
) -> None:
    for number, child in enumerate(("ses_2", "ses_3")):
        assert PluginEvents(sessions, child, "ses_1").before("search", {"q": number}) == ALLOWED
    refusal(host.before("search", {"q": 2}))


def test_a_prompt_begins_a_turn_and_idleness_closes_calls(
    host: PluginEvents, sessions: ServedSessions
) -> None:
    session = sessions.open(SessionRequest(session="ses_1"))
    turn = session._state.cel_session["turn"]
    host.send("prompt")
    assert session._state.cel_session["turn"] == turn + 1
    host.before("bash", {"command": "sleep 9"})
    host.send("idle")
    assert not session.in_flight


ALLOWS = "echo '{\"allow\": true}'"


@pytest.mark.parametrize(("effect", "expected"), [("allow", {"allow": True}), ("block", None)])
def test_an_event_that_cannot_be_answered_follows_the_policy(
    policy_file: Path, effect: str, expected: dict[str, bool] | None
) -> None:
    with policy_file.open("a") as policy:
        policy.write(f"on_internal_error: {effect}\n")
    with Guard.load(policy_file) as guard:
        answer = answer_hook(ServedSessions(guard), "opencode", b"{}")
    assert answer.output == expected
    assert answer.exit_code == (2 if expected is None else 0)


DRIVER = """
import { Policyguard } from "./policyguard.mjs"
const client = { session: { get: async () => ({ data: { parentID: "ses_0" } }) } }
const hooks = await Policyguard({ client, directory: "/x" })
const input = { tool: "bash", sessionID: "ses_1", callID: "c1" }
const output = { output: "out", metadata: { exit: 3 } }
try {
  await hooks["tool.execute.before"](input, { args: { command: "ls" } })
  await hooks["tool.execute.after"](input, output)
  console.log(JSON.stringify({ ran: true, output: output.output }))
} catch (error) {
  console.log(JSON.stringify({ ran: false, reason: error.message }))
}
process.exit()
"""


def run_plugin(folder: Path, check: str, report: str = "true") -> dict[str, Any]:
    """Run a call through the plugin, with these commands for its hook."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    plugin = OPENCODE.install("", lambda reports: report if reports else check, 0)
    (folder / "policyguard.mjs").write_text(plugin.replace("12000", "1000"))
    (folder / "driver.mjs").write_text(DRIVER)
    run = subprocess.run([node, "driver.mjs"], cwd=folder, capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def test_the_plugin_reports_calls_and_adds_advice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    check = f"tee -a {log} > {tmp_path / 'none'}; {ALLOWS}"
    report = f'tee -a {log} > {tmp_path / "none"}; echo \'{{"advice": "stop"}}\''
    assert run_plugin(tmp_path, check, report) == {"ran": True, "output": "out\nstop"}
    before, after = log.read_text().replace("}{", "}\n{").splitlines()
    call = {"call": "c1", "tool": "bash", "args": {"command": "ls"}}
    session = {"session": "ses_1", "parent": "ses_0", "cwd": "/x"}
    assert json.loads(before) == {**session, "event": "before", **call}
    result = {"result": "out", "exit_code": 3}
    assert json.loads(after) == {**session, "event": "after", **call, **result}


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (f"echo {shlex.quote(json.dumps({'refuse': 'the canary stays'}))}", "the canary stays"),
        ("echo no policy >&2; exit 2", "no policy"),
        ("exit 1", "ended with 1"),
        ("/nonexistent/policyguard-hook", "not found"),
        ("kill -9 $$", "ended with null"),
        ("exec sleep 9", "does not answer"),
        ("echo what", "no JSON"),
        pytest.param("printf '{\"advice\": '", "no JSON", marks=pytest.mark.slow),
        ("true", "does not allow"),
        pytest.param("echo null", "does not allow", marks=pytest.mark.slow),
        pytest.param("echo '[]'", "does not allow", marks=pytest.mark.slow),
        ("echo '{\"allow\": 1}'", "does not allow"),
        pytest.param('echo \'{"verdict": "no"}\'', "does not allow", marks=pytest.mark.slow),
    ],
)
def test_the_plugin_refuses_what_policyguard_does_not_allow(
    tmp_path: Path, command: str, reason: str
) -> None:
    answer = run_plugin(tmp_path, command)
    assert not answer["ran"]
    assert reason in answer["reason"]


def test_a_report_that_fails_stops_nothing(tmp_path: Path) -> None:
    assert run_plugin(tmp_path, ALLOWS, "exit 1") == {"ran": True, "output": "out"}
