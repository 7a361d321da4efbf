"""The steps of a limit (`advise_at` …) when its threshold moves."""

from __future__ import annotations

from policyguard.model.limits import Limit

_WEAK_TO_STRONG = ("advise_at", "ask_at", "halt_at")
_EARLIEST = 2
"""A step at the first attempt would meet every call."""


def moved(limit: Limit, before: int, now: int) -> dict[str, int]:
    """The steps of `limit` for a threshold of `now`, where they were made for one of `before`.

    Those within the threshold stay, or come down with it; those beyond keep their distance. One
    that a stronger step leaves no room is left out.
    """
    steps: dict[str, int] = {}
    lowest: int | None = None
    for name in reversed(_WEAK_TO_STRONG):
        step = getattr(limit, name)
        if step is None:
            continue
        step = step + now - before if step > before else min(step, now)
        if step < _EARLIEST or (lowest is not None and step >= lowest):
            continue
        steps[name] = lowest = step
    return {name: steps[name] for name in _WEAK_TO_STRONG if name in steps}
