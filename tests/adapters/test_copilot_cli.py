"""What Copilot CLI's hook events mean; their shapes are those that 1.0.102 sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.sessions import ServedSessions, SessionRequest

NOTHING = HookAnswer()


class CopilotEvents:
    """One session of Copilot CLI, or a sub-agent's."""

    def __init__(self, sessions: ServedSessions, agent: str = "") -> None:
        self._sessions = sessions
        self._latest: dict[str, Any] = {}
        self._common: dict[str, Any] = {"sessionId": agent or "fd80"}
        if agent:
            self._common |= {"agentId": agent, "agentType": "explore", "parentAgentId": "fd80"}

    def send(self, **fields: Any) -> HookAnswer:
        common = {**self._common, "timestamp": 1795652374858, "cwd": "/home/ann/x"}
        body = json.dumps({**common, **fields}).encode()
        return answer_hook(self._sessions, "copilot-cli", body)

    def before(self, tool: str, args: dict[str, Any]) -> HookAnswer:
        self._latest = {"toolName": tool, "toolArgs": args}
        return self.send(**self._latest)

    def after(self, text: str, kind: str = "success") -> HookAnswer:
        result = {"resultType": kind, "textResultForLlm": text}
        return self.send(**self._latest, toolResult=result)

    def failed(self, error: str) -> HookAnswer:
        return self.send(**self._latest, error=error)


@pytest.fixture
def host(sessions: ServedSessions) -> CopilotEvents:
    return CopilotEvents(sessions)


def decision(answer: HookAnswer) -> tuple[str, str]:
    assert answer.output is not None
    return answer.output["permissionDecision"], answer.output["permissionDecisionReason"]


def test_a_refused_call_is_denied_with_its_reason(host: CopilotEvents) -> None:
    assert host.before("bash", {"command": "ls"}) == NOTHING
    kind, reason = decision(host.before("delete", {"path": "canary"}))
    assert kind == "deny"
    assert "the canary stays" in reason


def test_a_missing_file_is_read_twice_only(host: CopilotEvents) -> None:
    for _ in range(2):
        assert host.before("view", {"path": "/x"}) == NOTHING
        host.failed("Path does not exist")
    kind, reason = decision(host.before("view", {"path": "/x"}))
    assert kind == "deny"
    assert "failed twice" in reason


def test_a_command_that_fails_twice_is_refused(host: CopilotEvents) -> None:
    for number in range(2):
        assert host.before("bash", {"command": "cat /x"}) == NOTHING
        text = "cat: /x: No such file or directory"
        host.after(f"{text}\n<shellId: {number} completed with exit code 1>")
    assert "failed twice" in decision(host.before("bash", {"command": "cat /x"}))[1]


def test_the_number_of_the_shell_makes_no_difference(host: CopilotEvents) -> None:
    advice = ""
    for number in range(4):
        host.before("bash", {"command": "make lint"})
        answer = host.after(f"fine\n<shellId: {number} completed with exit code 0>")
        if answer.output is not None:
            advice = answer.output["additionalContext"]
    assert "with the same result" in advice


def test_what_asks_is_left_to_the_user_and_counted_if_it_runs(
    host: CopilotEvents, sessions: ServedSessions
) -> None:
    for number in range(2):
        host.before("search", {"q": number})
        host.after("found")
    session = sessions.open(SessionRequest(session="fd80"))
    for answer in ("rejected", "success"):
        assert decision(host.before("search", {"q": 2}))[0] == "ask"
        host.after("found", answer)
        assert not session.in_flight
    assert session._state.cel_session["calls"] == 3


def test_a_call_that_the_user_rejected_has_not_run(
    host: CopilotEvents, sessions: ServedSessions
) -> None:
    host.before("search", {"q": 1})
    host.after("no", "rejected")
    session = sessions.open(SessionRequest(session="fd80"))
    assert not session.in_flight
    assert session._state.cel_session["calls"] == 0


def test_sub_agents_share_the_budget_of_the_main_agent(
    host: CopilotEvents, sessions: ServedSessions
) -> None:
    for number, agent in enumerate(("a1", "a2")):
        assert CopilotEvents(sessions, agent).before("search", {"q": number}) == NOTHING
    assert decision(host.before("search", {"q": 2}))[0] == "ask"


def test_a_prompt_begins_a_turn_and_its_end_closes_calls(
    host: CopilotEvents, sessions: ServedSessions
) -> None:
    session = sessions.open(SessionRequest(session="fd80"))
    host.send(source="new", initialPrompt="go")
    turn = session._state.cel_session["turn"]
    host.send(prompt="go")
    assert session._state.cel_session["turn"] == turn + 1
    host.before("bash", {"command": "sleep 9"})
    host.send(stopReason="end_turn", stop_hook_active=False)
    assert not session.in_flight
    host.send(reason="complete")
    assert session.closed
