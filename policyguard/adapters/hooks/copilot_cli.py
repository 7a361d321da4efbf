"""GitHub Copilot CLI: command hooks (tested with 1.0.102).

Its events name neither themselves nor calls: a result belongs to the call in flight with the same
tool and arguments. Sub-agents have sessions of their own, whose events name the parent's.
"""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer
from policyguard.adapters.hooks.calls import cancel_calls, find_call, record_call
from policyguard.adapters.json_text import decode
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session
from policyguard.model.effect import Effect

NAME = "copilot-cli"

_USER = "the user of Copilot CLI"


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    request = SessionRequest(
        session=event["sessionId"],
        parent=event.get("parentAgentId") or None,
        agent=event.get("agentType") or "",
        cwd=event.get("cwd"),
    )
    session = sessions.open(request)
    if "toolName" in event:
        if "toolResult" in event or "error" in event:
            return _record(sessions, session, event)
        return _check(sessions, session, event)
    if "prompt" in event:
        session.turn()
    elif "stopReason" in event:
        cancel_calls(session)
    elif "reason" in event:  # of the session's end
        cancel_calls(session)
        session.close()
    return NO_OPINION


def _read_args(event: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, which are JSON text or an object."""
    args = event.get("toolArgs")
    if isinstance(args, str):
        args = decode(args) if args else {}
    return args if isinstance(args, dict) else {"input": args}


def _check(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    decision = sessions.check(session, event["toolName"], _read_args(event), None)
    if decision.allowed:
        return NO_OPINION
    kind = "ask" if decision.effect is Effect.ASK else "deny"
    return HookAnswer({"permissionDecision": kind, "permissionDecisionReason": decision.message})


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    tool, args = event["toolName"], _read_args(event)
    call = find_call(sessions, session, tool, args)
    if call is None:
        return NO_OPINION
    result = event.get("toolResult")
    text = result.get("textResultForLlm") if isinstance(result, dict) else result
    kind = result.get("resultType") if isinstance(result, dict) else "success"
    if kind in ("denied", "rejected"):  # by the user: it has not run
        if sessions.asked.pop((session.id, call), None) is None:
            session.release(call)
        return NO_OPINION
    if "error" in event or kind != "success":
        given = {"error": str(event.get("error") or text or kind)}
    else:
        given = _read_output(text)
    recorded = record_call(sessions, session, call, tool, args, _USER, **given)
    if recorded is None or not recorded.advice:
        return NO_OPINION
    return HookAnswer({"additionalContext": recorded.advice})


_ENDED, _WITH_CODE = "<shellId: ", " completed with exit code "


def _read_output(text: Any) -> dict[str, Any]:
    """Return a result as `Session.record` takes it.

    To the output of a command, Copilot CLI adds a line with its exit code and the shell's number,
    which would make all results different.
    """
    if not isinstance(text, str):
        return {"result": text}
    output, found, ended = text.rpartition(_ENDED)
    code = ended.partition(_WITH_CODE)[2].removesuffix(">")
    if not found or not code.isdecimal():
        return {"result": text}
    return {"result": output.removesuffix("\n"), "exit_code": int(code)}
