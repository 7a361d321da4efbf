"""How many calls recorded sessions make in one turn."""

from __future__ import annotations

from collections.abc import Iterable

from policyguard.model.event import Admitted, TurnStarted
from policyguard.traces import Skipped, TraceFile


def max_calls_per_turn(traces: Iterable[TraceFile]) -> dict[tuple[int, str], int]:
    """The most calls in a turn, by file (its place) and session."""
    most: dict[tuple[int, str], int] = {}
    for number, trace in enumerate(traces):
        counts: dict[str, int] = {}
        for item in trace:
            if isinstance(item, Skipped):
                continue
            if isinstance(item, TurnStarted):
                counts[item.session] = 0
            elif isinstance(item, Admitted):
                count = counts[item.session] = counts.get(item.session, 0) + 1
                key = number, item.session
                most[key] = max(most.get(key, 0), count)
    return most
