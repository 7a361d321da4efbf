"""Parameter bans: the region that dominates failing points, in all named parameters jointly.

If depth 24 with batch 64 ran out of memory, whatever is at least as large in *each* is banned, but
a deeper net with a smaller batch is not. Calls with different parameters cannot be compared: the
defaults of what a call leaves out are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from policyguard.model.constraint import Direction

Point = Mapping[str, Any]


def dominates(call: Point, failed: Point, direction: Direction) -> bool:
    """Whether a call is at a failing point, or beyond it in every parameter."""
    return call.keys() == failed.keys() and all(
        _reaches(call[name], value, direction) for name, value in failed.items()
    )


def count_dominated(call: Point, points: Iterable[Point], direction: Direction) -> int:
    """Count the failing points that a call dominates."""
    return sum(1 for failed in points if dominates(call, failed, direction))


def drop_refuted(points: Iterable[Point], good: Point, direction: Direction) -> tuple[Point, ...]:
    """Return the points that a success at `good` does not refute."""
    return tuple(failed for failed in points if not dominates(good, failed, direction))


def _reaches(value: Any, failed: Any, direction: Direction) -> bool:
    numbers = _is_number(value) and _is_number(failed)
    if direction == "up" and numbers:
        return bool(value >= failed)
    if direction == "down" and numbers:
        return bool(value <= failed)
    return value.__class__ is failed.__class__ and bool(value == failed)


def _is_number(value: Any) -> bool:
    return value.__class__ is int or value.__class__ is float
