"""What the hooks of several hosts do with events and results: each call gets one, none is lost."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from policyguard.adapters.hooks.answer import NO_OPINION, HookAnswer
from policyguard.adapters.sessions import ServedSessions, SessionRequest
from policyguard.engines.command_folder import FOLDER
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import UnknownCallError
from policyguard.model.outcome import Recorded

Handler = Callable[[ServedSessions, Session, dict[str, Any]], HookAnswer]
"""Answers one kind of event in its session."""


def dispatch(
    handlers: Mapping[str, Handler],
    sessions: ServedSessions,
    session: Session,
    event: dict[str, Any],
) -> HookAnswer:
    """Answer an event by its `hook_event_name`; one that has no handler gets no opinion.

    Raises `ValueError` if such an event names a tool: it may be a call that waits for an answer.
    """
    name = event["hook_event_name"]
    handler = handlers.get(name)
    if handler is not None:
        return handler(sessions, session, event)
    if "tool_name" in event:
        raise ValueError(f"unknown event `{name}`; known are {', '.join(sorted(handlers))}")
    return NO_OPINION


def describe_session(event: Mapping[str, Any]) -> SessionRequest:
    """Return the session of an event whose sub-agents have the main agent's `session_id`.

    A sub-agent is a session of its own, with the main agent's as its parent.
    """
    main, agent, cwd = event["session_id"], event.get("agent_id"), event.get("cwd")
    if not agent:
        return SessionRequest(session=main, cwd=cwd)
    kind = event.get("agent_type") or ""
    return SessionRequest(session=f"{main}/{agent}", parent=main, agent=kind, cwd=cwd)


def record_call(
    sessions: ServedSessions,
    session: Session,
    call: str,
    tool: str,
    args: Mapping[str, Any],
    by: str,
    **result: Any,
) -> Recorded | None:
    """Record a result; None if the call is unknown here.

    A call that needed an approval and has run was approved by the host's user (`by`), in the host's
    own dialog: it is counted as such, and the approval is used up. An event that names another call
    than the one that was asked about approves nothing: an agent could have sent it.
    """
    asked = sessions.asked.get((session.id, call))
    if asked is not None:
        args = _locate_as_asked(session, asked, args)
    if (
        asked is not None
        and _still_asks(session, asked, tool, args)
        and _suffices(session, asked, by)
        and session.approve(asked, by=by)
    ):
        del sessions.asked[session.id, call]
        named = None if call == asked.id else call  # where the host names its calls
        decision = sessions.check(session, tool, args, named)
        call = named or decision.id
    try:
        return sessions.record(session, call, **result)
    except UnknownCallError:
        return None


def _locate_as_asked(
    session: Session, asked: Decision, args: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return arguments with the folder that the call was asked about in: it may have left that."""
    request = session._state.approvals.requests.get(asked.fingerprint)
    checked = request.call.args if request is not None and request.call is not None else None
    if not checked or FOLDER not in checked:
        return args
    return {FOLDER: checked[FOLDER], **args}


def _still_asks(session: Session, asked: Decision, tool: str, args: Mapping[str, Any]) -> bool:
    """Whether a call is the one that was asked about, and nothing else refuses it now.

    Otherwise the approval would stay, for a call that the user has not seen.
    """
    found = session.preview(tool, args)
    return found.effect is Effect.ASK and found.fingerprint == asked.fingerprint


def _suffices(session: Session, asked: Decision, by: str) -> bool:
    """Whether the user's yes is all that a call lacks: one of several would stay for another."""
    given = session._state.approvals.received.get(asked.fingerprint, ())
    people = len({by, *(one.by for one in given)})
    known = session.guard._evaluator.approval_requirements
    needed = [known[one.id] for one in asked.violations if one.id in known]
    return all(not one.labels and people >= one.approvers for one in needed)


def find_call(
    sessions: ServedSessions, session: Session, tool: str, args: Mapping[str, Any]
) -> str | None:
    """Return the call in flight with this tool and these arguments, the oldest of several.

    If there is none, return the one that waits for an approval.
    """
    fingerprint = session.preview(tool, args).fingerprint
    running = (call for call, found in session.in_flight.items() if found == fingerprint)
    waiting = (
        call
        for (owner, call), asked in sessions.asked.items()
        if owner == session.id and asked.fingerprint == fingerprint
    )
    return next(chain(running, waiting), None)


def cancel_calls(session: Session) -> None:
    """Record what is still in flight at the end of a turn: the host stopped it without an event."""
    for call in session.in_flight:
        session.record(call, error=CancelledError("no result by the end of the turn"))


def begin_turn(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    """Begin a turn."""
    session.turn()
    return NO_OPINION


def end_turn(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    """End a turn: close what was interrupted."""
    cancel_calls(session)
    return NO_OPINION


def end_session(_: ServedSessions, session: Session, event: dict[str, Any]) -> HookAnswer:
    """End a turn, and close the session; the host may resume it."""
    cancel_calls(session)
    session.close()
    return NO_OPINION
