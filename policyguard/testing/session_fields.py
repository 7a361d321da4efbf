"""What a guard knows of a session, for tests that expect it and for reports of failures."""

from __future__ import annotations

from typing import Any

from policyguard.evaluator.session_state import PROGRESSING
from policyguard.guard import Guard, Session

_CEL_FIELDS = ("turn", "calls", "failures", "tokens", "cost", "depth", "children", "progress")


def read_fields(guard: Guard, session: Session) -> dict[str, Any]:
    """The session's state by field; times in nanoseconds. Empty for a session that is over."""
    with guard._lock:
        known = guard._state.engine_state.sessions.get(session.id)
        if known is None:
            return {}
        # In a replay the clock stands still: all times are the events'.
        begun, now = known.started_at, max(guard._clock(), known.now or 0)
        found = {name: known.cel_session.get(name) for name in _CEL_FIELDS}
        # The expressions' own `running` is only brought up to date when a call is judged.
        found["running"] = len(known.in_flight)
        found["elapsed"] = now - begun if begun is not None else 0
        found["halted"] = bool(known.halted_by())
        found["disabled"] = sorted(session.disabled)
        return found


def format_fields(found: dict[str, Any]) -> dict[str, Any]:
    """The same for a reader: times with their unit, and nothing of what goes without saying."""
    told = {**found}
    if told.get("progress") == PROGRESSING:
        del told["progress"]
    if "elapsed" in told:
        told["elapsed"] = f"{told['elapsed'] / 1e9:g}s" if told["elapsed"] else ""
    return told
