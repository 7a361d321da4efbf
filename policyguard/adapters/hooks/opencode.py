"""OpenCode: events that policyguard's plugin sends, which `installation/opencode.py` writes."""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer
from policyguard.adapters.hooks.calls import cancel_calls, record_call
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.guard.session import Session

NAME = "opencode"

_USER = "the user of OpenCode"

ALLOWED = HookAnswer({"allow": True})
"""A call runs for nothing else: an answer that is lost refuses."""


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer an event. Raises `KeyError` and `TypeError` for what is not one."""
    request = SessionRequest(
        session=event["session"], parent=event.get("parent") or None, cwd=event.get("cwd")
    )
    session = sessions.open(request)
    match event["event"]:
        case "before":
            decision = sessions.check(session, event["tool"], event["args"], event["call"])
            return ALLOWED if decision.allowed else HookAnswer({"refuse": decision.message})
        case "after":
            return _record(sessions, session, event)
        case "prompt":
            session.turn()
        case "idle":
            cancel_calls(session)
    return NO_OPINION


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    result = {
        name: event[name]
        for name in ("result", "error", "exit_code")
        if event.get(name) is not None
    }
    recorded = record_call(
        sessions, session, event["call"], event["tool"], event.get("args") or {}, _USER, **result
    )
    if recorded is None or not recorded.advice:
        return NO_OPINION
    return HookAnswer({"advice": recorded.advice})
