"""What Codex's hook events and rollout mean; their shapes are those of 0.169.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.sessions import ServedSessions, SessionRequest

NOTHING = HookAnswer()
MISSING = "cat: /x: No such file or directory\n"


class CodexEvents:
    """One session of Codex, and its rollout."""

    def __init__(self, sessions: ServedSessions, rollout: Path) -> None:
        self._sessions = sessions
        self.rollout = rollout
        self._number = 0
        self._latest: dict[str, Any] = {}

    def send(self, event: str, **fields: Any) -> HookAnswer:
        common = {
            "session_id": "01a2",
            "turn_id": "01a3",
            "transcript_path": str(self.rollout),
            "cwd": "/home/ann/x",
            "hook_event_name": event,
            "model": "gpt",
            "permission_mode": "default",
        }
        return answer_hook(self._sessions, "codex", json.dumps({**common, **fields}).encode())

    def before(self, tool: str, args: dict[str, Any], **fields: Any) -> HookAnswer:
        self._number += 1
        call = f"call_{self._number}"
        self._latest = {"tool_name": tool, "tool_input": args, "tool_use_id": call, **fields}
        return self.send("PreToolUse", **self._latest)

    def after(self, response: str, exit_code: int | None = None) -> HookAnswer:
        if exit_code is not None:
            self.log("item_completed", item={**self._item(), "exit_code": exit_code})
        return self.send("PostToolUse", **self._latest, tool_response=response)

    def returned(self, output: str) -> None:
        """Log that the latest call has returned, which is all that a failed one does."""
        self.log("function_call_output", call_id=self._latest["tool_use_id"], output=output)

    def log(self, kind: str, **payload: Any) -> None:
        line = {"timestamp": "t", "type": "event_msg", "payload": {"type": kind, **payload}}
        with self.rollout.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _item(self) -> dict[str, Any]:
        return {"type": "CommandExecution", "id": self._latest["tool_use_id"], "status": "failed"}


@pytest.fixture
def host(sessions: ServedSessions, tmp_path: Path) -> CodexEvents:
    return CodexEvents(sessions, tmp_path / "rollout.jsonl")


def denial(answer: HookAnswer) -> str:
    assert answer.output is not None
    assert [*answer.output] == ["hookSpecificOutput"]  # another key would let the call run
    specific = answer.output["hookSpecificOutput"]
    assert sorted(specific) == ["hookEventName", "permissionDecision", "permissionDecisionReason"]
    assert specific["permissionDecision"] == "deny"
    return str(specific["permissionDecisionReason"])


def test_a_refused_call_is_denied_with_its_reason(host: CodexEvents) -> None:
    assert host.before("Bash", {"command": "ls"}) == NOTHING
    assert host.after("a\n", 0) == NOTHING
    assert "the canary stays" in denial(host.before("Bash", {"command": "rm canary"}))


def test_a_missing_file_is_read_twice_only(host: CodexEvents) -> None:
    for _ in range(2):
        assert host.before("Bash", {"command": "cat /x"}) == NOTHING
        host.after(MISSING, 1)
    assert "failed twice" in denial(host.before("Bash", {"command": "cat /x"}))


def test_what_asks_is_denied(host: CodexEvents) -> None:
    for number in range(2):
        host.before("search", {"q": number})
        host.after("found")
    denial(host.before("search", {"q": 2}))


def test_calls_that_failed_without_an_event_are_read_from_the_rollout(host: CodexEvents) -> None:
    for _ in range(2):
        assert host.before("mcp__files__read", {"path": "/x"}) == NOTHING
        host.returned("FileNotFoundError: [Errno 2] No such file or directory: '/x'")
    assert "failed twice" in denial(host.before("mcp__files__read", {"path": "/x"}))


def test_a_call_that_has_not_returned_stays_in_flight(
    host: CodexEvents, sessions: ServedSessions
) -> None:
    host.before("Bash", {"command": "make"})
    host.log("item_completed", item={"type": "CommandExecution", "id": "call_1", "exit_code": 0})
    host.before("Bash", {"command": "ls"})
    assert len(sessions.open(SessionRequest(session="01a2")).in_flight) == 2


def test_a_command_that_runs_on_has_not_failed(host: CodexEvents, sessions: ServedSessions) -> None:
    for _ in range(3):
        assert host.before("Bash", {"command": "make serve"}) == NOTHING
        host.returned("Wall time: 1 seconds\nProcess running with session ID 7\nOutput:\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\n",
        b'{"payload": "call_1"}\n',
        b'{"payload": {"type": "item_completed", "item": ["call_1"]}}\n',
        b'{"payload": {"type": "item_completed", "item": {"id": "call_1", "exit_code": "1"}}}\n',
        b'{"payload": {"type": "a_call_output", "call_id": "call_1"}}\n',
        b'{"payload": {"type": null, "call_id": "call_1"}}\n' + b"x" * 300_000,
    ],
)
def test_a_rollout_that_says_nothing_changes_nothing(host: CodexEvents, content: bytes) -> None:
    host.rollout.write_bytes(content)
    assert host.before("Bash", {"command": "ls"}) == NOTHING
    assert host.before("Bash", {"command": "pwd"}) == NOTHING


def test_a_rollout_that_cannot_be_read_changes_nothing(host: CodexEvents) -> None:
    for path in ("/none/rollout.jsonl", "/", "\0", None, 7):
        args = {"command": f"ls {path!r}"}
        assert host.before("Bash", args, transcript_path=path) == NOTHING
        assert host.after(f"answer to {path!r}") == NOTHING


def test_sub_agents_share_the_budget_of_the_main_agent(host: CodexEvents) -> None:
    for number, agent in enumerate(("a1", "a2")):
        assert host.before("search", {"q": number}, agent_id=agent, agent_type="x") == NOTHING
    denial(host.before("search", {"q": 2}))


def test_a_prompt_begins_a_turn_and_its_end_closes_calls(
    host: CodexEvents, sessions: ServedSessions
) -> None:
    session = sessions.open(SessionRequest(session="01a2"))
    turn = session._state.cel_session["turn"]
    host.send("UserPromptSubmit", prompt="go")
    assert session._state.cel_session["turn"] == turn + 1
    host.before("Bash", {"command": "sleep 9"})
    host.send("Stop", stop_hook_active=False, last_assistant_message="done")
    assert not session.in_flight
    host.send("SessionEnd", reason="other")
    assert session.closed
