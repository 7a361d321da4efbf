"""Gemini CLI: command hooks.

Its events name no calls: a result belongs to the call in flight with the same tool and arguments.
There is no dialog for hooks: without a terminal *ask* would end the process, so it is a denial.
"""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer
from policyguard.adapters.hooks.calls import cancel_calls, find_call
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session
from policyguard.model.effect import Effect

NAME = "gemini-cli"


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    session = sessions.open(SessionRequest(session=event["session_id"], cwd=event.get("cwd")))
    handler = _HANDLERS.get(event["hook_event_name"])
    return NO_OPINION if handler is None else handler(sessions, session, event)


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
    call = find_call(session, event["tool_name"], event["tool_input"])
    if call is None:
        return NO_OPINION
    response = event.get("tool_response") or {}
    error = response.get("error") if isinstance(response, dict) else None
    content = response.get("llmContent", response) if isinstance(response, dict) else response
    if error:
        text = error.get("message") if isinstance(error, dict) else error
        recorded = sessions.record(session, call, error=str(text or content))
    else:
        recorded = sessions.record(session, call, result=content)
    if not recorded.advice:
        return NO_OPINION
    specific = {"hookEventName": "AfterTool", "additionalContext": recorded.advice}
    return HookAnswer({"hookSpecificOutput": specific})


def _begin_turn(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    session.turn()
    return NO_OPINION


def _end_turn(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    cancel_calls(session)
    return NO_OPINION


def _end(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    cancel_calls(session)
    session.close()
    return NO_OPINION


_HANDLERS = {
    "BeforeTool": _check,
    "AfterTool": _record,
    "BeforeAgent": _begin_turn,
    "AfterAgent": _end_turn,
    "SessionEnd": _end,
}
