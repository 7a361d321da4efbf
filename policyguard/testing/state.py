"""What a guard knows of a session, for tests that expect it and for reports of failures."""

from __future__ import annotations

from typing import Any

from policyguard.guard import Guard, Session

_SHOWN = ("turn", "calls", "failures", "tokens", "cost", "depth", "children", "progress")


def fields(guard: Guard, session: Session) -> dict[str, Any]:
    """The session's state by field; times in nanoseconds. Empty for a session that is over."""
    with guard.lock:
        known = guard.world.state.sessions.get(session.id)
        if known is None:
            return {}
        begun, now = known.started_at, guard.clock()
        found = {name: known.facts.get(name) for name in _SHOWN}
        # The expressions' own `running` is only brought up to date when a call is judged.
        found["running"] = len(known.flights)
        found["elapsed"] = now - begun if begun is not None else 0
        found["halted"] = bool(known.halted_by())
        return found


def shown(found: dict[str, Any]) -> dict[str, Any]:
    """The same for a reader: what can be read without knowing its unit."""
    return {name: value for name, value in found.items() if name != "elapsed"} | (
        {"elapsed": f"{found['elapsed'] / 1e9:g}s"} if found.get("elapsed") else {}
    )
