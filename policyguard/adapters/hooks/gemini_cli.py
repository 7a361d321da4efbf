"""Gemini CLI: command hooks (tested with 0.61.0).

Sub-agents have the main agent's session. Its events name no calls: a result belongs to the call in
flight with the same tool and arguments. There is no dialog for hooks: without a terminal, *ask*
would end the process, so it is a denial.
"""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer, add_context
from policyguard.adapters.hooks.calls import begin_turn, dispatch, end_session, end_turn, find_call
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session
from policyguard.model.effect import Effect

NAME = "gemini-cli"

_SHELL = "run_shell_command"


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    session = sessions.open(SessionRequest(session=event["session_id"], cwd=event.get("cwd")))
    return dispatch(_HANDLERS, sessions, session, event)


def _check(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    server = (event.get("mcp_context") or {}).get("server_name") or ""
    decision = sessions.check(session, event["tool_name"], event["tool_input"], None, server=server)
    if decision.allowed:
        return NO_OPINION
    output: dict[str, Any] = {"decision": "deny", "reason": decision.message}
    if decision.effect is Effect.HALT:
        output |= {"continue": False, "stopReason": decision.message}
    return HookAnswer(output)


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    call = find_call(sessions, session, event["tool_name"], event["tool_input"])
    if call is None:
        return NO_OPINION
    recorded = sessions.record(session, call, **_read_response(event))
    return add_context("AfterTool", recorded.advice)


def _read_response(event: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's result as `Session.record` takes it."""
    response = event.get("tool_response")
    if not isinstance(response, dict):
        return {"result": response}
    content, error = response.get("llmContent", response), response.get("error")
    if error:
        text = error.get("message") if isinstance(error, dict) else error
        return {"error": str(text or content)}
    if event["tool_name"] == _SHELL and isinstance(content, str):
        return _read_command(content)
    return {"result": content}


_EXIT_CODE = "Exit Code: "
_ADDED = ("Process Group PGID: ", "Background PIDs: ", "Signal: ")


def _read_command(text: str) -> dict[str, Any]:
    """Split the output of a command from what Gemini CLI adds: its exit code, unless that is 0.

    The process ids that it adds as well would make all results different.
    """
    head, found, rest = text.partition("Output: ")
    if not found or head not in ("", "<untrusted_context>\n"):
        return {"result": text}  # it was cancelled, or runs on
    lines = rest.removesuffix("\n</untrusted_context>").split("\n")
    while lines and lines[-1].startswith(_ADDED):
        del lines[-1]
    code = lines[-1].removeprefix(_EXIT_CODE) if lines else ""
    if not lines or not lines[-1].startswith(_EXIT_CODE) or not code.isdecimal():
        return {"result": "\n".join(lines)}
    return {"result": "\n".join(lines[:-1]), "exit_code": int(code)}


_HANDLERS = {
    "BeforeTool": _check,
    "AfterTool": _record,
    "BeforeAgent": begin_turn,
    "AfterAgent": end_turn,
    "SessionEnd": end_session,
}
