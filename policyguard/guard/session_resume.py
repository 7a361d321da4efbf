"""Going on with sessions as their journals have them, and first with those above them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.guard import validate
from policyguard.guard.call_pipeline import parse_call_number
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Closed, Refused, Started

if TYPE_CHECKING:
    from policyguard.guard.guard import Guard


def resolve_parent(guard: Guard, session: str, parent: Session | str | None) -> str:
    """The id of the session that is to be another's parent, open by now; empty for none.

    `ValueError` for one that cannot be it; and what opening a session raises.
    """
    if isinstance(parent, Session):
        if parent.guard is not guard:
            raise ValueError(f"`parent` is session `{parent.id}` of another guard")
        if parent.closed:
            raise ValueError(f"`parent` is session `{parent.id}`, which is over")
        if not parent.id:
            raise ValueError("`parent` is a session whose id is empty: open it with one")
        return parent.id
    above = validate.identifier("parent", parent)
    if above and above == session:
        raise ValueError(f"`parent` is `{above}`, which is the session itself")
    if above and not guard._open_sessions.is_held(above) and not reopen_session(guard, above):
        raise ValueError(
            f"`parent` is `{above}`: no such session is open, nor is there a journal to go on "
            "with; open the parent first"
        )
    return above


def resume_session(guard: Guard, session: str) -> int:
    """Rebuild a session from its journal, if it has one. Returns its latest call's number.

    A call that could not be written down had one too. Raises `JournalError` where the journal was
    altered: what it says is not to be built on.
    """
    calls = 0
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, (Admitted, Refused)):
            calls = max(calls + 1, parse_call_number(event.call))
        elif isinstance(event, Started):
            _resume_parent(guard, event)
        guard._state.rebuild(event)
    if calls and guard._shared_budgets is not None:
        guard._shared_budgets.invalidate()
    return calls


def _resume_parent(guard: Guard, started: Started) -> None:
    """Go on with the parent of a session, unless this is how one of the same id began before."""
    parent = started.parent
    if (
        parent
        and not guard._open_sessions.is_held(parent)
        and started == _find_started(guard, started.session)
    ):
        reopen_session(guard, parent)


def reopen_session(guard: Guard, session: str) -> bool:
    """Open a session as its journal has it. Returns whether there was one that is not over."""
    begun = _find_started(guard, session)
    if begun is not None:
        guard._start_session(begun)
    return begun is not None


def _find_started(guard: Guard, session: str) -> Started | None:
    """How a session began, by its journal; None where it has none, or is over."""
    begun: Started | None = None
    for event in guard._journal.read_events(session) if guard._journal is not None else ():
        if isinstance(event, Started):
            begun = event
        elif isinstance(event, Closed):
            begun = None
    return begun
