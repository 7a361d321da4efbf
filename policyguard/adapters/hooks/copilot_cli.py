"""GitHub Copilot CLI: command hooks.

Its events name no calls: a result belongs to the call in flight with the same tool and arguments.
Nothing can be added to a result, so advice reaches the model with the next refusal only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer
from policyguard.adapters.hooks.calls import cancel_calls, find_call
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session
from policyguard.model.effect import Effect

NAME = "copilot-cli"


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    session = sessions.open(SessionRequest(session=event["sessionId"], cwd=event.get("cwd")))
    if "toolResult" in event:
        return _record(sessions, session, event)
    if "toolName" in event:
        return _check(sessions, session, event)
    if "prompt" in event:
        session.turn()
    elif "reason" in event:  # of the session's end
        cancel_calls(session)
        session.close()
    return NO_OPINION


def _read_args(event: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, which are JSON text or an object."""
    args = event.get("toolArgs")
    if isinstance(args, str):
        args = msgspec.json.decode(args) if args else {}
    return args if isinstance(args, dict) else {"input": args}


def _check(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    decision = sessions.check(session, event["toolName"], _read_args(event), None)
    if decision.allowed:
        return NO_OPINION
    kind = "ask" if decision.effect is Effect.ASK else "deny"
    return HookAnswer({"permissionDecision": kind, "permissionDecisionReason": decision.message})


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    call = find_call(session, event["toolName"], _read_args(event))
    if call is None:
        return NO_OPINION
    result = event["toolResult"]
    text = result.get("textResultForLlm") if isinstance(result, dict) else result
    kind = result.get("resultType") if isinstance(result, dict) else "success"
    if kind == "success":
        sessions.record(session, call, result=text)
    elif kind in ("denied", "rejected"):  # by the user: it has not run
        session.release(call)
    else:
        sessions.record(session, call, error=str(text or kind))
    return NO_OPINION
