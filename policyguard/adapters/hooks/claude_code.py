"""Claude Code: command and http hooks (tested with 2.1.332).

Sub-agents are sessions of their own whose parent is the main agent's. A turn begins with the user's
prompt, not with the note that a background agent has finished. Calls that Claude Code itself turns
down (unknown tools, invalid input) fire no event but `PostToolBatch`, which is read for them.
Its shell keeps `cd` from call to call, and each event says in which folder it is.
"""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer, add_context
from policyguard.adapters.hooks.calls import (
    describe_session,
    dispatch,
    end_session,
    end_turn,
    record_call,
)
from policyguard.adapters.sessions import ServedSessions
from policyguard.engines.command_folder import locate_command
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect

NAME = "claude-code"

_USER = "the user of Claude Code"
_NOT_FROM_THE_USER = "<task-notification>"
_TEXT_FIELDS = ("stdout", "content", "output", "result", "text", "stderr")
"""Fields of a response that hold what the model reads."""

_TURNED_DOWN = "<tool_use_error>"
"""How the result of a call begins that Claude Code did not run."""


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    session = sessions.open(describe_session(event))
    return dispatch(_HANDLERS, sessions, session, event)


def _check(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    began_in = session._state.cel_session["cwd"]
    args = locate_command(event["tool_input"], event.get("cwd") or "", began_in)
    decision = sessions.check(session, event["tool_name"], args, event["tool_use_id"])
    return NO_OPINION if decision.allowed else _refuse(decision)


def _refuse(decision: Decision) -> HookAnswer:
    output: dict[str, Any] = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask" if decision.effect is Effect.ASK else "deny",
            "permissionDecisionReason": decision.message,
        }
    }
    if decision.effect is Effect.HALT:  # this alone would let the call run
        output |= {"continue": False, "stopReason": decision.message}
    return HookAnswer(output)


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    duration = event.get("duration_ms")
    result: dict[str, Any] = {"duration": duration / 1000 if duration else None}
    if event["hook_event_name"] == "PostToolUse":
        result["result"] = _read_response(event.get("tool_response"))
    elif event.get("is_interrupt"):
        result["error"] = InterruptedByUser(event.get("error") or "")
    else:
        result["error"] = event.get("error") or ""
    recorded = record_call(
        sessions,
        session,
        event["tool_use_id"],
        event["tool_name"],
        event["tool_input"],
        _USER,
        **result,
    )
    if recorded is None:
        return NO_OPINION
    answer = add_context(event["hook_event_name"], recorded.advice)
    if not recorded.violations or event["hook_event_name"] != "PostToolUse":
        return answer
    shown = _replace_text(event.get("tool_response"), recorded.result)
    specific = {"hookEventName": "PostToolUse", "updatedToolOutput": shown}
    return HookAnswer(_merge_specific(answer.output, specific))


def _merge_specific(output: dict[str, Any] | None, specific: dict[str, Any]) -> dict[str, Any]:
    before = {} if output is None else output["hookSpecificOutput"]
    return {"hookSpecificOutput": {**before, **specific}}


def _replace_text(response: Any, result: Any) -> Any:
    """Return a response with the result as result rules leave it.

    It must have the response's own form, or Claude Code shows the response as it was.
    """
    if isinstance(response, list) and isinstance(result, dict):
        return result["content"]
    if isinstance(response, list):
        return [{"type": "text", "text": result}]
    if not isinstance(response, dict) or isinstance(result, dict):
        return result
    names = [name for name in _TEXT_FIELDS if isinstance(response.get(name), str)]
    if not names:  # the text is further inside, as in what `Read` returns
        return {
            name: _replace_text(value, result) if isinstance(value, dict) else value
            for name, value in response.items()
        }
    return {**response, **dict.fromkeys(names, ""), names[0]: result}


class InterruptedByUser(BaseException):
    """Not the tool's failure: recorded as cancelled."""


def _read_response(response: Any) -> Any:
    """Return a tool's response as its text, where it has one."""
    if isinstance(response, dict) and isinstance(response.get("stdout"), str):
        parts = (response["stdout"], response.get("stderr"))
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    if isinstance(response, list):  # an MCP tool's
        return {"content": response}
    return response


def _reconcile(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    """Count the calls of a message that fired no other event: Claude Code turned them down."""
    advice = []
    for call in event.get("tool_calls") or ():
        id_, response = call["tool_use_id"], str(call.get("tool_response"))
        if not response.startswith(_TURNED_DOWN) or sessions.has_seen(session.id, id_):
            continue
        args = call.get("tool_input")
        decision = sessions.check(
            session, call["tool_name"], args if isinstance(args, dict) else {}, id_
        )
        if decision.allowed:
            advice.append(sessions.record(session, id_, error=response).advice)
        else:
            advice.append(decision.message)
    return add_context(event["hook_event_name"], "\n".join(filter(None, advice)))


def _begin_turn(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    if not str(event.get("prompt") or "").lstrip().startswith(_NOT_FROM_THE_USER):
        session.turn()
    return NO_OPINION


_HANDLERS = {
    "PreToolUse": _check,
    "PostToolUse": _record,
    "PostToolUseFailure": _record,
    "PostToolBatch": _reconcile,
    "UserPromptSubmit": _begin_turn,
    "Stop": end_turn,
    "SubagentStop": end_session,
    "SessionEnd": end_session,
}

EVENTS = tuple(_HANDLERS)
"""The events of which a host is to call the hooks."""
