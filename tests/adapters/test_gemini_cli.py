"""What Gemini CLI's hook events mean; their shapes are those that 0.61.0 sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.sessions import ServedSessions, SessionRequest

NOTHING = HookAnswer()
MISSING = {
    "llmContent": "Could not read file because no file was found at the specified path.",
    "returnDisplay": "File not found.",
    "error": {"message": "File not found: /x", "type": "file_not_found"},
}


class GeminiEvents:
    """One session of Gemini CLI."""

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions
        self._latest: dict[str, Any] = {}

    def send(self, event: str, **fields: Any) -> HookAnswer:
        common = {
            "session_id": "0c30",
            "transcript_path": "/home/ann/.gemini/tmp/x/chats/session-0c30.jsonl",
            "cwd": "/home/ann/x",
            "hook_event_name": event,
            "timestamp": "2026-11-26T00:20:13.217Z",
        }
        body = json.dumps({**common, **fields}).encode()
        return answer_hook(self._sessions, "gemini-cli", body)

    def before(self, tool: str, args: dict[str, Any], **fields: Any) -> HookAnswer:
        self._latest = {"tool_name": tool, "tool_input": args, **fields}
        return self.send("BeforeTool", **self._latest)

    def after(self, response: Any) -> HookAnswer:
        return self.send("AfterTool", **self._latest, tool_response=response)


@pytest.fixture
def host(sessions: ServedSessions) -> GeminiEvents:
    return GeminiEvents(sessions)


def denial(answer: HookAnswer) -> str:
    assert answer.output is not None
    assert answer.output["decision"] == "deny"
    return str(answer.output["reason"])


def shell(output: str, *added: str, pgid: int = 1612) -> dict[str, str]:
    lines = [f"Output: {output}", *added, f"Process Group PGID: {pgid}"]
    text = "<untrusted_context>\n" + "\n".join(lines) + "\n</untrusted_context>"
    return {"llmContent": text, "returnDisplay": output}


def test_a_refused_call_is_denied_with_its_reason(host: GeminiEvents) -> None:
    assert host.before("run_shell_command", {"command": "ls"}) == NOTHING
    assert "the canary stays" in denial(host.before("delete", {"path": "canary"}))


def test_a_missing_file_is_read_twice_only(host: GeminiEvents) -> None:
    for _ in range(2):
        assert host.before("read_file", {"file_path": "/x"}) == NOTHING
        host.after(MISSING)
    assert "failed twice" in denial(host.before("read_file", {"file_path": "/x"}))


def test_a_command_that_fails_twice_is_refused(host: GeminiEvents) -> None:
    command = {"command": "cat /x"}
    for number in range(2):
        assert host.before("run_shell_command", command) == NOTHING
        host.after(shell("cat: /x: No such file or directory", "Exit Code: 1", pgid=number))
    assert "failed twice" in denial(host.before("run_shell_command", command))


def test_the_process_ids_that_gemini_adds_make_no_difference(host: GeminiEvents) -> None:
    advice = ""
    for number in range(4):
        host.before("run_shell_command", {"command": "make lint"})
        answer = host.after(shell("nothing to do", "Background PIDs: 7", pgid=number))
        if answer.output is not None:
            specific = answer.output["hookSpecificOutput"]
            assert specific["hookEventName"] == "AfterTool"
            advice = specific["additionalContext"]
    assert "with the same result" in advice


def test_a_command_that_was_cancelled_is_recorded(
    host: GeminiEvents, sessions: ServedSessions
) -> None:
    host.before("run_shell_command", {"command": "sleep 9"})
    host.after({"llmContent": "Command was cancelled by user before it could complete."})
    assert not sessions.open(SessionRequest(session="0c30")).in_flight


def test_an_mcp_tool_belongs_to_its_server(host: GeminiEvents, sessions: ServedSessions) -> None:
    context = {"server_name": "files", "tool_name": "read"}
    assert host.before("mcp_files_read", {}, mcp_context=context) == NOTHING


def test_what_asks_is_denied(host: GeminiEvents) -> None:
    for number in range(2):
        host.before("search", {"q": number})
        host.after({"llmContent": "found"})
    assert denial(host.before("search", {"q": 2}))


def test_a_prompt_begins_a_turn_and_its_end_closes_calls(
    host: GeminiEvents, sessions: ServedSessions
) -> None:
    session = sessions.open(SessionRequest(session="0c30"))
    turn = session._state.cel_session["turn"]
    host.send("BeforeAgent", prompt="go")
    assert session._state.cel_session["turn"] == turn + 1
    host.before("run_shell_command", {"command": "sleep 9"})
    assert session.in_flight
    host.send("AfterAgent", prompt="go", prompt_response="done", stop_hook_active=False)
    assert not session.in_flight


def test_events_that_nobody_handles_get_no_answer(host: GeminiEvents) -> None:
    assert host.send("SessionStart", source="startup") == NOTHING
    assert host.send("SessionEnd", reason="exit") == NOTHING
