"""Codex: command hooks (tested with 0.171.0).

Its events are like Claude Code's, but it takes a denial and its reason only: any other key beside
them lets the call run. Sub-agents are sessions of their own whose parent is the main agent's.
Results have no exit code, and calls that failed fire no event: both are read from the rollout.
"""

from __future__ import annotations

from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer, add_context
from policyguard.adapters.hooks.calls import (
    begin_turn,
    describe_session,
    dispatch,
    end_turn,
    record_call,
)
from policyguard.adapters.hooks.codex_rollout import read_calls
from policyguard.adapters.sessions import ServedSessions
from policyguard.guard.session import Session

NAME = "codex"

_USER = "the user of Codex"
_RUNS_ON = "Process running with session ID"
"""What the output of a command says that has not ended."""


def answer(sessions: ServedSessions, event: dict[str, Any]) -> HookAnswer:
    """Answer a hook event. Raises `KeyError` and `TypeError` for what is not one."""
    session = sessions.open(describe_session(event))
    return dispatch(_HANDLERS, sessions, session, event)


def _check(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    _reconcile(sessions, session, event.get("transcript_path"))
    decision = sessions.check(
        session, event["tool_name"], _read_args(event["tool_input"]), event["tool_use_id"]
    )
    if decision.allowed:
        return NO_OPINION
    specific = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": decision.message,
    }
    return HookAnswer({"hookSpecificOutput": specific})


def _read_args(args: Any) -> dict[str, Any]:
    return args if isinstance(args, dict) else {"input": args}


def _record(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    call = event["tool_use_id"]
    logged = read_calls(event.get("transcript_path"), [call]).get(call)
    recorded = record_call(
        sessions,
        session,
        call,
        event["tool_name"],
        _read_args(event["tool_input"]),
        _USER,
        result=event.get("tool_response"),
        exit_code=None if logged is None else logged.exit_code,
    )
    return add_context("PostToolUse", "" if recorded is None else recorded.advice)


def _reconcile(sessions: ServedSessions, session: Session, rollout: object) -> None:
    """Record the calls in flight that have returned without an event: they failed."""
    for call, logged in read_calls(rollout, [*session.in_flight]).items():
        if logged.output is None:
            continue
        if logged.output.find(_RUNS_ON, 0, 1000) >= 0:
            sessions.record(session, call, result=logged.output)
        else:
            sessions.record(session, call, error=logged.output, exit_code=logged.exit_code)


def _stop(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    rollout = event.get("agent_transcript_path") or event.get("transcript_path")
    _reconcile(sessions, session, rollout)
    return end_turn(sessions, session, event)


def _end_agent(sessions: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    _stop(sessions, session, event)
    session.close()
    return NO_OPINION


_HANDLERS = {
    "PreToolUse": _check,
    "PostToolUse": _record,
    "UserPromptSubmit": begin_turn,
    "Stop": _stop,
    "SubagentStop": _end_agent,
    "SessionEnd": _end_agent,
}
