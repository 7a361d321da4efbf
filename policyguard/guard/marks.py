"""What a host says of marks, and what the run of a sub-agent's calls is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policyguard.evaluator.mark_states import RUN_SCOPES
from policyguard.evaluator.marks import CompiledMark
from policyguard.evaluator.session_state import SessionState
from policyguard.guard import validate
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.event import MarkChange, Marked


def find_mark(
    marks: Mapping[str, CompiledMark], name: str, key: str | None, *, clears: bool = False
) -> MarkChange:
    """Return the change of a mark that a host names; with `clears`, all keys may be meant.

    `KeyError` for an unknown mark, `ValueError` for a key that is missing or too much.
    """
    mark = marks.get(validate.text("id", name))
    if mark is None:
        known = ", ".join(marks) or "none"
        hint = did_you_mean(name, marks) or f"it has: {known}"
        raise KeyError(f"no mark `{name}` in this policy; {hint}")
    if key is None:
        if mark.is_keyed and not clears:
            raise ValueError(f"mark `{name}` has keys; pass `key`")
        return MarkChange(name)
    if not mark.is_keyed:
        raise ValueError(f"mark `{name}` has no keys; leave out `key`")
    return MarkChange(name, mark.digest(validate.text("key", key)))


def run_event(
    session: SessionState,
    at: int | None,
    marks: Iterable[MarkChange],
    cleared: Iterable[MarkChange],
) -> Marked | None:
    """Return the event that tells a sub-agent's run what it has changed; None for nothing."""
    states = session.marks
    if states is None or session.parent is None:
        return None
    known = {name for name, mark in states.marks.items() if mark.scope in RUN_SCOPES}
    shared = tuple([one for one in marks if one.mark in known])
    removed = tuple([one for one in cleared if one.mark in known])
    if not (shared or removed):
        return None
    return Marked(
        session.mark_scopes["session"], at, marks=shared, cleared=removed, child=session.id
    )
