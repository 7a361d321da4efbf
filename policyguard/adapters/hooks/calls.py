"""What the hooks of all hosts do with calls: checked before, recorded after, never lost."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any

from policyguard.adapters.sessions import ServedSessions
from policyguard.guard.session import Session
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.errors import UnknownCallError
from policyguard.model.outcome import Recorded


def check_call(
    sessions: ServedSessions,
    session: Session,
    tool: str,
    args: Mapping[str, Any],
    call: str | None = None,
    **options: Any,
) -> Decision:
    """Check a call; one that needs an approval is kept, since the host may ask its user."""
    if call and call in session.in_flight:  # the host repeats an event whose answer it lost
        repeated = session.preview(tool, args, **options)
        if repeated.fingerprint == session.in_flight[call]:
            return Decision(call, session.id, tool, Effect.ALLOW, True)
    decision = session.check(tool, args, call=call, **options)
    if call:
        sessions.note_seen(session.id, call)
        if decision.effect is Effect.ASK:
            sessions.note_asked(decision, call)
    return decision


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
    own dialog: it is counted as such.
    """
    asked = sessions.asked.pop((session.id, call), None)
    if asked is not None and session.approve(asked, by=by):
        session.check(tool, args, call=call)
    try:
        return session.record(call, **result)
    except UnknownCallError:
        return None


def cancel_calls(session: Session) -> None:
    """Record what is still in flight at the end of a turn: the host stopped it without an event."""
    for call in session.in_flight:
        session.record(call, error=CancelledError("no result by the end of the turn"))
