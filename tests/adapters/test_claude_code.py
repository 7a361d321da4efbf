"""What Claude Code's hook events mean; their shapes are those that 2.1.332 sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.adapters.hooks.answer import HookAnswer
from policyguard.adapters.hooks.hosts import answer_hook
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from tests.adapters.hook_events import ClaudeCodeEvents

NOTHING = HookAnswer()
SECRET = "ghp_" + "a1B2" * 9
MASKED = "[secret_github_token]"


@pytest.fixture
def host(sessions: ServedSessions) -> ClaudeCodeEvents:
    return ClaudeCodeEvents(sessions)


def decision(answer: HookAnswer) -> tuple[str, str]:
    assert answer.output is not None
    specific = answer.output["hookSpecificOutput"]
    return specific["permissionDecision"], specific["permissionDecisionReason"]


def test_an_allowed_call_gets_no_answer(host: ClaudeCodeEvents) -> None:
    assert host.before("Bash", {"command": "ls"}) == NOTHING
    assert host.after({"stdout": "a", "stderr": "", "interrupted": False}) == NOTHING


def test_half_of_a_surrogate_pair_is_text_as_any(host: ClaudeCodeEvents) -> None:
    assert host.before("Bash", {"command": "echo \ud83d"}) == NOTHING
    assert host.after({"stdout": "\ude00", "stderr": "", "interrupted": False}) == NOTHING
    assert decision(host.before("Bash", {"command": "rm canary \ud83d"}))[0] == "deny"


def test_a_refused_call_is_denied_with_its_reason(host: ClaudeCodeEvents) -> None:
    kind, reason = decision(host.before("Bash", {"command": "rm canary"}))
    assert kind == "deny"
    assert "the canary stays" in reason


def test_a_failed_call_that_is_repeated_is_refused(host: ClaudeCodeEvents) -> None:
    for _ in range(2):
        assert host.before("Read", {"file_path": "/x"}) == NOTHING
        host.failed("File does not exist.")
    kind, reason = decision(host.before("Read", {"file_path": "/x"}))
    assert kind == "deny"
    assert "failed twice" in reason


def test_advice_is_added_to_the_context(host: ClaudeCodeEvents) -> None:
    for _ in range(3):
        assert host.before("Grep", {"pattern": "x"}) == NOTHING
        answer = host.after("nothing found")
    assert answer.output is not None
    specific = answer.output["hookSpecificOutput"]
    assert specific["hookEventName"] == "PostToolUse"
    assert "A note on `Grep`" in specific["additionalContext"]


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        (
            {"stdout": SECRET, "stderr": "and more", "interrupted": False},
            {"stdout": f"{MASKED}\nand more", "stderr": "", "interrupted": False},
        ),
        (
            {"type": "text", "file": {"filePath": "/a", "content": SECRET, "numLines": 1}},
            {"type": "text", "file": {"filePath": "/a", "content": MASKED, "numLines": 1}},
        ),
        ([{"type": "text", "text": SECRET}], [{"type": "text", "text": MASKED}]),
        (SECRET, MASKED),
    ],
)
def test_what_result_rules_change_replaces_the_result(
    tmp_path: Path, response: object, shown: object
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: p\n"
        "patterns: {secret_github_token: 'ghp_[A-Za-z0-9]{36}'}\n"
        "result_rules:\n"
        "  keys: {finds: ['secret_*'], effect: redact}\n"
        "  cards: {tools: [Card], effect: withhold}\n"
    )
    with Guard.load(policy) as guard:
        host = ClaudeCodeEvents(ServedSessions(guard))
        host.before("Tool", {})
        answer = host.after(response).output
        assert answer is not None
        assert answer["hookSpecificOutput"]["updatedToolOutput"] == shown
        host.before("Card", {})
        withheld = host.after(response).output
        assert withheld is not None
        hidden = withheld["hookSpecificOutput"]["updatedToolOutput"]
        assert type(hidden) is type(response)
        assert "is withheld" in str(hidden)
        assert SECRET not in str(hidden)
        assert MASKED not in str(hidden)


def test_a_call_that_asks_is_left_to_the_user_and_counted_if_it_runs(
    host: ClaudeCodeEvents, sessions: ServedSessions
) -> None:
    for number in range(2):
        host.before("search", {"q": number})
        host.after("found")
    assert decision(host.before("search", {"q": 2}))[0] == "ask"
    host.after("found")  # the user said yes
    session = sessions.open(SessionRequest(session=host.session))
    assert session._state.cel_session["calls"] == 3
    assert not session.in_flight


FOLDERS = """
policyguard: 1
name: folders
extends: [core]
rules:
  outside: {commands: [rm], paths: {outside: ["."]}, effect: block}
  settings: {commands: [rm], paths: [settings.json], effect: ask}
"""


@pytest.fixture
def in_folders(tmp_path: Path) -> Iterator[ClaudeCodeEvents]:
    """Events for a policy that goes by folders; the session is in `/home/ann/x`."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(FOLDERS)
    with Guard.load(policy) as guard:
        host = ClaudeCodeEvents(ServedSessions(guard))
        assert host.before("Bash", {"command": "ls"}) == NOTHING
        host.after({"stdout": ""})
        yield host


@pytest.mark.parametrize(
    ("command", "folder", "expected"),
    [
        ("rm x", "/srv", "deny"),
        ("rm settings.json", "/home/ann/x/sub", "allow"),
        ("rm ../settings.json", "/home/ann/x/sub", "ask"),
        ("rm -r ../build", "/home/ann/x/sub", "allow"),
        ("rm -r ../../y", "/home/ann/x/sub", "deny"),
        ("cd .. && rm settings.json", "/home/ann/x/sub", "ask"),
        ("rm x", "", "allow"),
    ],
)
def test_a_command_runs_where_the_shell_has_gone(
    in_folders: ClaudeCodeEvents, command: str, folder: str, expected: str
) -> None:
    answer = in_folders.before("Bash", {"command": command}, cwd=folder)
    assert (decision(answer)[0] if answer != NOTHING else "allow") == expected


def test_a_call_that_asked_is_counted_though_it_left_its_folder(
    in_folders: ClaudeCodeEvents,
) -> None:
    call = {"command": "cd .. && rm settings.json"}
    assert decision(in_folders.before("Bash", call, cwd="/home/ann/x/sub"))[0] == "ask"
    in_folders.send(
        "PostToolUse",
        tool_name="Bash",
        tool_input=call,
        tool_use_id=in_folders.call,
        tool_response={"stdout": ""},
        cwd="/home/ann/x",
    )
    session = in_folders.sessions.open(SessionRequest(session=in_folders.session))
    assert session._state.cel_session["calls"] == 2
    assert not session.in_flight


def test_a_halt_ends_the_run_and_denies(sessions: ServedSessions, tmp_path: Path) -> None:
    policy = tmp_path / "halt.yaml"
    policy.write_text(
        "policyguard: 1\nname: h\nrules:\n  stop: {tools: [Bash], when: 'true', effect: halt, "
        "message: stop, examples: {match: [{Bash: {command: ls}}]}}\n"
    )
    with Guard.load(policy) as guard:
        answer = ClaudeCodeEvents(ServedSessions(guard)).before("Bash", {"command": "ls"})
    assert decision(answer)[0] == "deny"
    assert answer.output is not None
    assert answer.output["continue"] is False


def test_sub_agents_share_the_budget_of_the_main_agent(host: ClaudeCodeEvents) -> None:
    for number, agent in enumerate(("a1", "a2")):
        assert host.before("search", {"q": number}, agent_id=agent, agent_type="x") == NOTHING
    assert decision(host.before("search", {"q": 2}))[0] == "ask"


def test_a_prompt_begins_a_turn_and_the_end_of_a_background_agent_does_not(
    host: ClaudeCodeEvents, sessions: ServedSessions
) -> None:
    session = sessions.open(SessionRequest(session=host.session))
    host.send("UserPromptSubmit", prompt="go")
    turn = session._state.cel_session["turn"]
    host.send("UserPromptSubmit", prompt="<task-notification>\n<task-id>a</task-id>")
    assert session._state.cel_session["turn"] == turn
    host.send("UserPromptSubmit", prompt="go on")
    assert session._state.cel_session["turn"] == turn + 1


def test_calls_that_were_stopped_are_closed_at_the_end_of_the_turn(
    host: ClaudeCodeEvents, sessions: ServedSessions
) -> None:
    host.before("Bash", {"command": "sleep 9"})
    session = sessions.open(SessionRequest(session=host.session))
    assert len(session.in_flight) == 1
    host.send("Stop")
    assert not session.in_flight


def test_calls_that_claude_code_turns_down_count(host: ClaudeCodeEvents) -> None:
    answers = []
    for number in range(8):
        call = {
            "tool_name": "Nope",
            "tool_input": {"a": 1},
            "tool_use_id": f"t{number}",
            "tool_response": "<tool_use_error>Error: No such tool available: Nope</tool_use_error>",
        }
        answers.append(host.send("PostToolBatch", tool_calls=[call]))
    texts = [a.output["hookSpecificOutput"]["additionalContext"] for a in answers if a.output]
    assert any("was not run" in text for text in texts)


def test_a_batch_of_calls_that_had_their_events_counts_nothing(
    host: ClaudeCodeEvents, sessions: ServedSessions
) -> None:
    host.before("Read", {"file_path": "/x"})
    host.failed("<tool_use_error>no</tool_use_error>")
    call = {
        "tool_name": "Read",
        "tool_input": {"file_path": "/x"},
        "tool_use_id": host.call,
        "tool_response": "<tool_use_error>no</tool_use_error>",
    }
    host.send("PostToolBatch", tool_calls=[call])
    session = sessions.open(SessionRequest(session=host.session))
    assert session._state.cel_session["calls"] == 1


def test_an_event_that_is_sent_again_is_not_counted_twice(
    host: ClaudeCodeEvents, sessions: ServedSessions
) -> None:
    host.before("search", {"q": 1}, call="t1")
    assert host.before("search", {"q": 1}, call="t1") == NOTHING
    session = sessions.open(SessionRequest(session=host.session))
    assert session._state.cel_session["calls"] == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"hook_event_name": "PreToolUse", "session_id": "s"}', b"\xff"],
)
def test_what_is_no_event_refuses(sessions: ServedSessions, body: bytes) -> None:
    answer = answer_hook(sessions, "claude-code", body)
    assert answer.exit_code == 2
    assert "could not check" in answer.error


def test_an_event_without_a_field_is_refused_by_the_name_of_the_field(
    sessions: ServedSessions,
) -> None:
    answer = answer_hook(sessions, "claude-code", b'{"session_id": "s"}')
    assert "the event has no field `hook_event_name`" in answer.error


@pytest.mark.parametrize("name", ["preToolUse", "ToolCall"])
def test_an_unknown_event_with_a_tool_is_refused(host: ClaudeCodeEvents, name: str) -> None:
    answer = host.send(name, tool_name="Bash", tool_input={"command": "rm canary"})
    assert answer.exit_code == 2
    assert f"unknown event `{name}`; known are PostToolBatch" in answer.error


def test_events_that_nobody_handles_get_no_answer(host: ClaudeCodeEvents) -> None:
    assert host.send("PreCompact", trigger="auto") == NOTHING
    assert host.send("SessionStart", source="startup") == NOTHING


def test_a_session_that_ended_goes_on_when_it_is_resumed(host: ClaudeCodeEvents) -> None:
    host.before("search", {"q": 1})
    host.after("found")
    host.send("SessionEnd", reason="exit")
    host.before("search", {"q": 2})
    host.after("found")
    assert decision(host.before("search", {"q": 3}))[0] == "ask"


@pytest.mark.parametrize("event", ["PostToolUse", "PostToolUseFailure"])
def test_an_event_of_another_call_approves_nothing(
    host: ClaudeCodeEvents, sessions: ServedSessions, event: str
) -> None:
    """As an agent could send it that has the socket, but not the token of admins."""
    for number in range(2):
        host.before("search", {"q": number})
        host.after("found")
    assert decision(host.before("search", {"q": 2}))[0] == "ask"
    other = {"tool_name": "read", "tool_input": {}, "tool_use_id": host.call}
    host.send(event, **other, tool_response="x")
    assert decision(host.before("search", {"q": 2}))[0] == "ask"
    session = sessions.open(SessionRequest(session=host.session))
    assert session._state.cel_session["calls"] == 2


def test_a_result_approves_nothing_that_is_refused_for_another_reason(
    sessions: ServedSessions,
) -> None:
    """The approval would be used by a later call, which the user has not seen."""
    host = ClaudeCodeEvents(sessions)
    for number in range(2):
        host.before("search", {"q": number})
        host.after("found")
    asked = "search", {"q": "canary"}
    assert decision(host.before(*asked))[0] == "ask"
    session = sessions.open(SessionRequest(session=host.session))
    session.offer(["read"])
    host.after("found")
    session.offer(["read", "search"])
    assert decision(host.before(*asked))[0] == "ask"


def test_a_result_is_not_one_yes_of_two(tmp_path: Path) -> None:
    policy = tmp_path / "two.yaml"
    policy.write_text(
        "policyguard: 1\nname: t\nrules:\n  pay: {tools: [pay], when: 'true', effect: ask, "
        "message: two people, approval: {count: 2}, examples: {match: [{pay: {}}]}}\n"
    )
    with Guard.load(policy) as guard:
        sessions = ServedSessions(guard)
        host = ClaudeCodeEvents(sessions)
        assert decision(host.before("pay", {}))[0] == "ask"
        host.after("paid")
        (question,) = guard.questions()
        assert question.approved_by == ()
