"""The ids that a session gives its calls: c1, c2 and so on."""

from __future__ import annotations

from policyguard.engines.lazy_pattern import lazy_pattern

_CALL_ID = lazy_pattern("c([1-9][0-9]{0,14})")


def parse_call_number(call: str) -> int:
    """Return the number in a call's id; 0 for an id of another kind."""
    found = _CALL_ID.fullmatch(call)
    return int(found[1]) if found is not None else 0
