"""Resuming sessions from their journals, parents first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.guard import validate
from policyguard.guard.call_pipeline import parse_call_number
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Closed, Refused, Started

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


def resolve_parent(guard: Guard, session: str, parent: Session | str | None) -> str:
    """Return the id of a new session's parent, which is open then; empty for none.

    `ValueError` for one that cannot be its parent; and what opening a session raises.
    """
    if isinstance(parent, Session):
        if parent.guard is not guard:
            raise ValueError(f"`parent` is session `{parent.id}` of another guard")
        if parent.closed:
            raise ValueError(f"`parent` is session `{parent.id}`, which is closed")
        if not parent.id:
            raise ValueError("`parent` is a session with an empty id; open it with another")
        return parent.id
    parent_id = validate.identifier("parent", parent)
    if parent_id == session and parent_id:
        raise ValueError(f"`parent` is `{parent_id}`, which is the session itself")
    if not parent_id or guard._open_sessions.is_held(parent_id):
        return parent_id
    if not reopen_session(guard, parent_id):
        raise ValueError(
            f"`parent` is `{parent_id}`: no such session is open, and there is no journal to "
            "resume it from; open the parent first"
        )
    return parent_id


def resume_session(guard: Guard, session: str) -> int:
    """Rebuild a session from its journal, if it has one. Returns the number of its latest call.

    Calls that could not be written have numbers too. Raises `AlteredError` for a journal that was
    altered.
    """
    last_number = 0
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, (Admitted, Refused)):
            last_number = max(last_number + 1, parse_call_number(event.call))
        elif isinstance(event, Started):
            _resume_parent(guard, event)
        guard._state.rebuild(event)
    if last_number and guard._shared_budgets is not None:
        guard._shared_budgets.invalidate()
    return last_number


def _resume_parent(guard: Guard, started: Started) -> None:
    """Resume the parent of a session, unless an earlier life of the session began so."""
    parent = started.parent
    if (
        parent
        and not guard._open_sessions.is_held(parent)
        and started == _find_started(guard, started.session)
    ):
        reopen_session(guard, parent)


def reopen_session(guard: Guard, session: str) -> bool:
    """Resume a session from its journal. Returns whether it has one whose run is not over."""
    started = _find_started(guard, session)
    if started is not None:
        guard._start_session(started)
    return started is not None


def _find_started(guard: Guard, session: str) -> Started | None:
    """Return the start of a session's current life in its journal; None if there is none."""
    started: Started | None = None
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, Started):
            started = event
        elif isinstance(event, Closed):
            started = None
    return started
